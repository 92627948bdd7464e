//! What is called of the C library.

use crate::session;
use crate::shadow::Record;
use crate::sys::Errno;
use core::ffi::CStr;
use core::ptr;

/// Lets [`crate::thread::ending`] be called when this thread ends.
pub fn watch_end(record: *mut Record) {
    if let Some(key) = session::key() {
        // SAFETY: the key exists. The first 32 keys take no memory; of a later one the first use in a thread allocates.
        unsafe { libc::pthread_setspecific(key, record.cast()) };
    }
}

/// Asks for the size of pages.
pub fn ask_page_size() {
    // SAFETY: reads what the kernel has handed over to the program.
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

/// Lets [`crate::thread::in_child`] be called in forked children, where the C library offers that (glibc).
pub fn watch_forks() {
    type Handler = Option<extern "C" fn()>;
    type Register =
        unsafe extern "C" fn(Handler, Handler, Handler, *mut core::ffi::c_void) -> core::ffi::c_int;
    let address = crate::arch::register_atfork();
    if address != 0 {
        // SAFETY: glibc's function has this type; the handler is never unloaded.
        unsafe {
            let register: Register =
                core::mem::transmute(ptr::with_exposed_provenance::<()>(address as usize));
            register(None, None, Some(crate::thread::in_child), ptr::null_mut());
        }
    }
}

/// The part of the dynamic linker's description of a module that is public (`link.h`).
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const core::ffi::c_char,
}

/// Loads a pool and returns whether that worked.
pub fn load(path: &CStr) -> bool {
    // SAFETY: a pool has no initialisers; the path outlives the call. A handle is the module's description. Its name is
    // changed: debuggers would open the path, which in their processes is something else, a pipe perhaps.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if handle.is_null() {
            return false;
        }
        (*handle.cast::<LinkMap>()).name = c"".as_ptr();
    }
    true
}

/// Receives bytes, and the descriptors that came with them, without waiting; see `recvmsg(2)`.
///
/// # Errors
/// `recvmsg`'s (`EAGAIN` if there is nothing yet), or `EPIPE` at the end.
pub fn receive(socket: i32, buffer: &mut [u8], descriptors: &mut [i32; 2]) -> Result<usize, Errno> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
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
    // SAFETY: all buffers outlive the call and have the sizes that are said.
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
