//! Messages between the recorder and traced processes: structures of integers, and descriptors of memory beside them.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Returns the ids of the process and of the user at the other end, as this process sees them.
///
/// # Errors
/// The system call's error.
pub fn peer(stream: &UnixStream) -> io::Result<(u32, u32)> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure and its size outlive the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((peer.pid.unsigned_abs(), peer.uid))
}

/// Makes a file in memory that holds these bytes from its start on.
///
/// # Errors
/// The system calls' errors.
pub fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"dioptra", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

fn bytes_of<T: Copy>(message: &T) -> &[u8] {
    bytes_of_slice(std::slice::from_ref(message))
}

/// Returns the bytes of messages.
pub fn bytes_of_slice<T: Copy>(messages: &[T]) -> &[u8] {
    // SAFETY: messages are `repr(C)` structures of integers without padding.
    unsafe { std::slice::from_raw_parts(messages.as_ptr().cast(), size_of_val(messages)) }
}

fn from_bytes<T: Copy>(read: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<T> {
    let mut message = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: zeroed memory of the message's size.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(message.as_mut_ptr().cast(), size_of::<T>()) };
    read(bytes)?;
    // SAFETY: messages are structures of integers, for which all bytes are valid.
    Ok(unsafe { message.assume_init() })
}

/// Waits for a message.
///
/// # Errors
/// If the other end is gone.
pub fn receive<T: Copy>(mut stream: &UnixStream) -> io::Result<T> {
    from_bytes(|bytes| stream.read_exact(bytes))
}

/// Sends a message, and descriptors with its first byte, two at most.
///
/// # Errors
/// If the other end is gone.
pub fn send<T: Copy>(stream: &UnixStream, message: &T, descriptors: &[i32]) -> io::Result<()> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let bytes = bytes_of(message);
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: zero is a valid value of all its fields; buffers outlive the call; the control buffer is large enough for
    // the two descriptors that are sent at most.
    let sent = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !descriptors.is_empty() {
            let size = size_of_val(descriptors) as u32;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size) as usize;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size) as usize;
            libc::CMSG_DATA(first)
                .cast::<i32>()
                .copy_from_nonoverlapping(descriptors.as_ptr(), descriptors.len());
        }
        libc::sendmsg(stream.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    match sent {
        -1 => Err(io::Error::last_os_error()),
        n if n as usize == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
