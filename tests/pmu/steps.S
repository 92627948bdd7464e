// steps: heavy, medium and light take 60, 30 and 10 % of the loops' turns; the call chain is _start, rounds, round, and
// one of them. It makes no system call but exit and touches no page but its own.
        .include "code.inc"

        .text
        function heavy, 6000
        work    4
        endfunction heavy

        function medium, 3000
        work    4
        endfunction medium

        function light, 1000
        work    4
        endfunction light

        function round, 1
        bl      heavy
        bl      medium
        bl      light
        endfunction round

        function rounds, ROUNDS
        bl      round
        endfunction rounds

        program rounds
