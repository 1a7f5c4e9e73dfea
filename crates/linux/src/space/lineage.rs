//! A family tree of processes that replay a program: forks that nobody waits for, and gates that all of them see.
//!
//! # Guarantee
//! [`reap`] returns once every descendant has ended, also those whose own parent ended before them. If one is ended by
//! a signal, the gates open and all are asked to stop, so that nobody waits for it in vain.
//!
//! Threads are the C library's and not the standard library's, which locks a list of stacks whenever a thread begins or
//! ends: a child that another thread makes meanwhile would find the lock taken for ever.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const UNSET: u32 = 0;
const SET: u32 = 1;
const AWAITED: u32 = 2;

/// Gates that processes share: each opens once.
pub struct Gates {
    words: NonNull<AtomicU32>,
    len: usize,
}

// SAFETY: the words are atomics in memory that lives as long as this value.
unsafe impl Sync for Gates {}
// SAFETY: as above.
unsafe impl Send for Gates {}

impl Gates {
    /// Returns `nr_gates` closed gates. Processes that are made later share them.
    pub fn new(nr_gates: usize) -> io::Result<Self> {
        // One more word: the wish to stop.
        let len = nr_gates + 1;
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a free place.
        let words = unsafe { libc::mmap(std::ptr::null_mut(), len * 4, rights, flags, -1, 0) };
        match NonNull::new(words.cast::<AtomicU32>()) {
            Some(words) if words.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => Ok(Self { words, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: as many words are mapped until `drop`, and zeros are valid.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }

    /// Opens a gate.
    pub fn open(&self, gate: usize) {
        let word = &self.words()[gate];
        // ORDER: Release pairs with the Acquire in `wait`.
        if word.swap(SET, Ordering::Release) == AWAITED {
            // SAFETY: the word is ours; the call reads no memory.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }

    /// Waits until a gate is open.
    pub fn wait(&self, gate: usize) {
        let word = &self.words()[gate];
        // ORDER: Acquire pairs with the Release in `open`.
        while word.load(Ordering::Acquire) != SET {
            // Relaxed: a failure means set or awaited, and the loop looks again.
            let _ = word.compare_exchange(UNSET, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            let forever = std::ptr::null::<libc::timespec>();
            // SAFETY: the word is ours; the kernel compares it and sleeps.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, AWAITED, forever) };
        }
    }

    /// Asks all to stop, and lets nobody wait any more.
    pub fn stop(&self) {
        (0..self.len).rev().for_each(|gate| self.open(gate));
    }

    /// Returns whether all are asked to stop.
    pub fn has_stopped(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `open`.
        self.words()[self.len - 1].load(Ordering::Acquire) == SET
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.len * 4) };
    }
}

/// Makes a child that lives `life` and ends; nobody but [`reap`] waits for it.
pub fn split(life: impl FnOnce()) -> io::Result<()> {
    // SAFETY: the child runs code that takes no lock which another thread may have held at the fork but malloc's, which
    // the C library hands over; it ends without running what its parent will run.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // Relaxed: the child's only thread. Its parent's other threads are not here.
            NR_THREADS.store(0, Ordering::Relaxed);
            let is_whole = catch_unwind(AssertUnwindSafe(life)).is_ok();
            // SAFETY: ends the child.
            unsafe { libc::_exit(if is_whole { 0 } else { PANICKED }) }
        }
        _ => Ok(()),
    }
}

/// What a process ends with if one of its threads panics.
const PANICKED: i32 = 101;

/// How many threads of a crew this process has.
static NR_THREADS: AtomicU32 = AtomicU32::new(0);

/// Threads beside a process's first one, which end before [`crew`] returns; as `std::thread::Scope`.
#[derive(Debug)]
pub struct Crew<'scope, 'env: 'scope>(PhantomData<&'scope mut &'scope ()>, PhantomData<&'env mut &'env ()>);

/// Lives `life`, which may let threads begin, and waits until these have ended. A process has one crew at a time.
pub fn crew<'env>(life: impl for<'scope> FnOnce(&'scope Crew<'scope, 'env>)) {
    let crew = Crew(PhantomData, PhantomData);
    let done = catch_unwind(AssertUnwindSafe(|| life(&crew)));
    loop {
        // ORDER: Acquire pairs with the Release of a thread that ends: what it did is seen.
        let nr_threads = NR_THREADS.load(Ordering::Acquire);
        if nr_threads == 0 {
            break;
        }
        // SAFETY: the word is a static; the call waits only while the word holds what was read.
        unsafe { libc::syscall(libc::SYS_futex, NR_THREADS.as_ptr(), libc::FUTEX_WAIT, nr_threads, 0) };
    }
    done.unwrap_or_else(|panic| resume_unwind(panic));
}

/// A thread's life.
type Life = Box<dyn FnOnce() + Send>;

impl<'scope> Crew<'scope, '_> {
    /// Begins a thread. If it panics, the process ends.
    pub fn begin(&'scope self, stack_bytes: usize, life: impl FnOnce() + Send + 'scope) -> io::Result<()> {
        let life: Box<dyn FnOnce() + Send + 'scope> = Box::new(life);
        // SAFETY: only the lifetime changes, and `crew` does not return before the thread has ended.
        let life: Box<Life> = Box::new(unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Life>(life) });
        let life = Box::into_raw(life);
        // Relaxed: whoever waits for the threads is the one that lets them begin, or one of these.
        NR_THREADS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the attributes are initialised before they are used, and destroyed once; the thread takes the box.
        let code = unsafe {
            let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
            let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
            libc::pthread_attr_init(attributes.as_mut_ptr());
            libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
            let code = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), live, life.cast());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            code
        };
        if code == 0 {
            return Ok(());
        }
        leave_crew();
        // SAFETY: no thread has taken it over.
        drop(unsafe { Box::from_raw(life) });
        Err(io::Error::from_raw_os_error(code))
    }
}

extern "C" fn live(life: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `begin` made the box for this thread.
    let life = unsafe { Box::from_raw(life.cast::<Life>()) };
    if catch_unwind(AssertUnwindSafe(life)).is_err() {
        // SAFETY: ends the process.
        unsafe { libc::_exit(PANICKED) }
    }
    leave_crew();
    std::ptr::null_mut()
}

fn leave_crew() {
    // ORDER: Release pairs with the Acquire in `crew`.
    if NR_THREADS.fetch_sub(1, Ordering::Release) == 1 {
        // SAFETY: the word is a static.
        unsafe { libc::syscall(libc::SYS_futex, NR_THREADS.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// Makes orphaned descendants this process's children; gives it as many descriptors as it may have, and lets stacks
/// grow so far if they may.
pub fn adopt(stack_bytes: u64) {
    // SAFETY: a setting of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    raise(libc::RLIMIT_NOFILE, u64::MAX);
    raise(libc::RLIMIT_STACK, stack_bytes);
}

/// Raises a limit of this process to `wanted`, or as far as that may be.
fn raise(resource: libc::__rlimit_resource_t, wanted: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is our own variable.
    unsafe {
        if libc::getrlimit(resource, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_cur.max(wanted.min(limit.rlim_max));
            libc::setrlimit(resource, &raw const limit);
        }
    }
}

/// Waits until all descendants have ended; returns how one of them failed, if one did.
pub fn reap(gates: &Gates) -> Option<String> {
    let mut failure = None;
    loop {
        let mut status = 0;
        // SAFETY: the status is our own variable.
        let child = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if child < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            if super::has_interrupt() {
                gates.stop();
            }
            continue;
        }
        if child < 0 {
            return failure;
        }
        if status != 0 {
            gates.stop();
            failure.get_or_insert_with(|| describe(status));
        }
    }
}

fn describe(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("a replaying process was ended by signal {}", libc::WTERMSIG(status))
    } else {
        format!("a replaying process ended with code {}", libc::WEXITSTATUS(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Family;

    const STACK_BYTES: usize = 256 << 10;

    #[test]
    fn a_child_that_is_made_while_threads_begin_and_end_has_threads_of_its_own() {
        let begin_three = || {
            crew(|crew| (0..3).for_each(|_| crew.begin(STACK_BYTES, || {}).expect("there is room for a thread")));
        };
        let life = || {
            adopt(0);
            let gates = Gates::new(0).expect("there is room for a gate");
            crew(|crew| {
                for _ in 0..300 {
                    let make_child = || split(begin_three).expect("there is room for a process");
                    crew.begin(STACK_BYTES, make_child).expect("there is room for a thread");
                    crew.begin(STACK_BYTES, || {}).expect("there is room for a thread");
                }
            });
            reap(&gates).unwrap_or_else(|| "done".into()).into_bytes()
        };
        let answer = Family::run(1, &|_, _| life()).expect("the family comes to its end");
        assert_eq!(answer, [b"done"]);
    }
}
