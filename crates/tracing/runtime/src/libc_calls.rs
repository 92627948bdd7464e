//! All calls of the C library.

use crate::session;
use crate::shadow::ThreadRecord;
use crate::sys::Errno;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Makes the C library call [`crate::thread::ending`] when this thread ends.
pub fn watch_end(record: *mut ThreadRecord) {
    if let Some(key) = session::key() {
        // SAFETY: the key exists. The first 32 keys take no memory; the first use of a later one in a thread
        // allocates.
        unsafe { libc::pthread_setspecific(key, record.cast()) };
    }
}

/// Asks for the size of pages.
pub fn ask_page_size() {
    // SAFETY: reads a value that the kernel has passed to the program.
    let size = unsafe { libc::getauxval(libc::AT_PAGESZ) };
    crate::sys::set_page_size(size as usize);
}

/// Makes the key for [`watch_end`].
pub fn create_key() {
    let mut key = 0;
    // SAFETY: the destructor has the right type and is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(crate::thread::ending)) } == 0 {
        session::set_key(key);
    }
}

/// Deletes the key, so that threads end without coming here.
pub fn delete_key() {
    if let Some(key) = session::take_key() {
        // SAFETY: the key exists.
        unsafe { libc::pthread_key_delete(key) };
    }
}

/// Makes the C library call [`crate::thread::in_child`] in forked children, if it offers that (glibc).
pub fn watch_forks() {
    unsafe extern "C" {
        /// The handle by which the C library knows this object; the start files define it.
        static __dso_handle: *mut core::ffi::c_void;
    }
    type Handler = Option<extern "C" fn()>;
    type RegisterAtfork =
        unsafe extern "C" fn(Handler, Handler, Handler, *mut core::ffi::c_void) -> core::ffi::c_int;
    let address = crate::arch::register_atfork();
    if address != 0 {
        // SAFETY: glibc's function has this type.
        unsafe {
            let register: RegisterAtfork =
                core::mem::transmute(ptr::with_exposed_provenance::<()>(address as usize));
            // The C library takes the handler away when it closes this object.
            register(None, None, Some(crate::thread::in_child), __dso_handle);
        }
    }
}

/// The part of the dynamic linker's description of a module that is public (`link.h`).
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const core::ffi::c_char,
}

/// glibc's `dlmopen`; 0 before it is known.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Returns true if the C library is glibc, the only one that the runtime supports. Called before all else here.
pub fn is_glibc() -> bool {
    // SAFETY: strings with an end.
    let (version, open) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr()),
            libc::dlsym(libc::RTLD_DEFAULT, c"dlmopen".as_ptr()),
        )
    };
    OPEN.store(open.expose_provenance(), Ordering::Relaxed);
    !version.is_null() && !open.is_null()
}

/// Returns the environment of the process. Other C libraries than glibc do not hand it over to constructors.
pub fn environment() -> *const *const core::ffi::c_char {
    unsafe extern "C" {
        static environ: *const *const core::ffi::c_char;
    }
    // SAFETY: set before the first constructor is called.
    unsafe { environ }
}

/// Calls `dlmopen` for the program's own modules. The runtime is not linked with that function, since other C
/// libraries do not have it.
///
/// # Safety
/// `dlopen`'s.
unsafe fn open_module(path: &CStr, flags: core::ffi::c_int) -> *mut core::ffi::c_void {
    type DlmopenFunction = unsafe extern "C" fn(
        libc::Lmid_t,
        *const core::ffi::c_char,
        core::ffi::c_int,
    ) -> *mut core::ffi::c_void;
    let open = OPEN.load(Ordering::Relaxed);
    if open == 0 {
        return ptr::null_mut();
    }
    // SAFETY: glibc's function has this type; the rest is the caller's promise.
    unsafe {
        let open: DlmopenFunction = core::mem::transmute(ptr::with_exposed_provenance::<()>(open));
        open(libc::LM_ID_BASE, path.as_ptr(), flags)
    }
}

/// Loads a pool. Returns false if that failed.
pub fn load(path: &CStr) -> bool {
    // Not `dlopen`: sanitizers put their own in its place, and MemorySanitizer's reads the memory at `l_addr`, which
    // is 0 for a pool. SAFETY: a pool has no initialisers; the path outlives the call. A handle is the module's
    // description. Its name is changed, because debuggers would open the path, which in their processes is something
    // else, a pipe perhaps.
    unsafe {
        let handle = open_module(path, libc::RTLD_NOW | libc::RTLD_LOCAL);
        if handle.is_null() {
            return false;
        }
        let description = handle.cast::<LinkMap>();
        let name = (*description).name;
        (*description).name = c"".as_ptr();
        let number = LOADED.fetch_add(1, Ordering::Relaxed);
        if let Some(pool) = POOLS.get(number) {
            pool.name.store(name.expose_provenance(), Ordering::Relaxed);
            pool.handle
                .store(handle.expose_provenance(), Ordering::Relaxed);
        }
    }
    true
}

/// A pool that was loaded.
#[derive(Debug)]
pub struct LoadedPool {
    handle: AtomicUsize,
    /// The name that the dynamic linker gave it, in memory of its own.
    name: AtomicUsize,
}

/// The pools that were loaded, as many as have room.
static POOLS: [LoadedPool; 1024] = [const {
    LoadedPool {
        handle: AtomicUsize::new(0),
        name: AtomicUsize::new(0),
    }
}; 1024];
/// The number of pools that were loaded.
static LOADED: AtomicUsize = AtomicUsize::new(0);

/// Returns the pools; `None` if there were too many to remember.
pub fn pools() -> Option<&'static [LoadedPool]> {
    POOLS.get(..LOADED.load(Ordering::Relaxed))
}

/// Closes a pool.
///
/// # Safety
/// No thread executes its code, or will return there.
pub unsafe fn close(pool: &LoadedPool) {
    let handle: *mut LinkMap =
        ptr::with_exposed_provenance_mut(pool.handle.load(Ordering::Relaxed));
    if handle.is_null() {
        return;
    }
    // SAFETY: a handle that was returned for a pool, which has no destructors. The dynamic linker frees the name.
    unsafe {
        (*handle).name = ptr::with_exposed_provenance(pool.name.load(Ordering::Relaxed));
        libc::dlclose(handle.cast());
    }
}

/// Returns the address of a function of the unwinder that has the same name as one of the runtime's; 0 if no unwinder
/// is loaded.
pub fn next_symbol(name: &CStr) -> usize {
    // SAFETY: strings with an end; nothing is loaded that is not loaded already.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        if !next.is_null() {
            return next.expose_provenance();
        }
        // The unwinder may have been loaded with a plugin, whose libraries other modules do not see.
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        let unwinder = open_module(c"libgcc_s.so.1", flags);
        if unwinder.is_null() {
            return 0;
        }
        libc::dlsym(unwinder, name.as_ptr()).expose_provenance()
    }
}

/// Returns the first address of the module that contains an address, and the first address behind it.
pub fn module_of(address: usize) -> Option<(usize, usize)> {
    // SAFETY: zero is a valid value; the dynamic linker fills it if it knows the address. A module's first page holds its
    // headers, and stays.
    unsafe {
        let mut found: libc::Dl_info = core::mem::zeroed();
        let place = ptr::with_exposed_provenance(address);
        if address == 0 || libc::dladdr(place, &raw mut found) == 0 {
            return None;
        }
        let base = found.dli_fbase.cast::<u8>();
        let header = &*base.cast::<libc::Elf64_Ehdr>();
        let segments = base.add(header.e_phoff as usize).cast::<libc::Elf64_Phdr>();
        let segments = core::slice::from_raw_parts(segments, usize::from(header.e_phnum));
        let loaded = segments.iter().filter(|s| s.p_type == libc::PT_LOAD);
        let size = loaded.map(|s| s.p_vaddr + s.p_memsz).max()?;
        Some((base.addr(), base.addr() + size as usize))
    }
}

/// Receives bytes, and the descriptors that came with them, without waiting; see `recvmsg(2)`.
///
/// # Errors
/// `recvmsg`'s (`EAGAIN` if there is nothing yet), or `EPIPE` at the end.
pub fn receive(socket: i32, buffer: &mut [u8], descriptors: &mut [i32; 2]) -> Result<usize, Errno> {
    #[repr(C, align(8))]
    struct ControlBuffer([u8; 64]);
    let mut control = ControlBuffer([0; 64]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: zero is a valid value of all its fields.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = 64;
    *descriptors = [-1; 2];
    // SAFETY: all buffers outlive the call and have the stated sizes.
    let got = unsafe {
        crate::arch::syscall(
            libc::SYS_recvmsg,
            [
                socket as usize,
                (&raw mut message).expose_provenance(),
                (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as usize,
                0,
                0,
                0,
            ],
        )
    };
    if got <= 0 {
        return Err(Errno(if got == 0 { libc::EPIPE } else { -got as i32 }));
    }
    // SAFETY: the kernel has filled the control buffer; the macros stay inside it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*header)
                .cmsg_len
                .saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = libc::CMSG_DATA(header).cast::<i32>();
            for (at, place) in descriptors.iter_mut().enumerate().take(bytes / 4) {
                *place = data.add(at).read_unaligned();
            }
        }
    }
    Ok(got as usize)
}
