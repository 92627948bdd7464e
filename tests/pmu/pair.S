// The functions of rates.inc for pair.c.
        .include "rates.inc"
