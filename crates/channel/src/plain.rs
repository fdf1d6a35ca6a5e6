//! Values that may come from another address space: any bytes are one.

/// What can be a record: plain data.
///
/// # Safety
/// Every pattern of bits is a value, no byte is padding, and there is no pointer, reference or interior mutability
/// in it.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($name:ty)*) => { $(
        // SAFETY: every pattern of bits is a number.
        unsafe impl Plain for $name {}
    )* };
}
plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array has no padding between its elements, and they are plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// All zeros is a value.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain`: every pattern of bits is a value.
    unsafe { std::mem::zeroed() }
}

#[inline]
pub(crate) fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain`: the bytes of the values, none of them padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

#[inline]
pub(crate) fn bytes_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: `Plain`: the bytes of the values, none of them padding, and whatever is put there is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
