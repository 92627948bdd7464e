// rates: rounds of the three functions of rates.inc, each long against any window.
        .include "rates.inc"

        function rounds, ROUNDS
        bl      quiet
        bl      faulting
        bl      calling
        endfunction rounds

        program rounds
