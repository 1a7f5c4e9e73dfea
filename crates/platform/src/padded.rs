//! Values on cache lines of their own.

/// Keeps a value on lines that hold nothing else (128 bytes: processors fetch lines in pairs).
///
/// ```
/// use faultless_platform::CachePadded;
///
/// let counters = [CachePadded::new(1_u64), CachePadded::new(2)];
/// assert_eq!(size_of_val(&counters), 256);
/// let [first, second] = counters;
/// assert_eq!(*second + first.into_inner(), 3);
/// ```
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> core::ops::Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> core::ops::DerefMut for CachePadded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
