//! Names for addresses: functions of ELF files, the kernel, the vdso.
