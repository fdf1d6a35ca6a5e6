// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Types whose values may come from another address space: any bytes are a valid value.

/// A type that a typed channel can carry: plain data.
///
/// # Safety
/// Every bit pattern is a valid value. The type has no padding, and contains no pointer, no
/// reference and no interior mutability.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($name:ty)*) => { $(
        // SAFETY: every bit pattern is a number.
        unsafe impl Plain for $name {}
    )* };
}
plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array has no padding between its elements, and they are plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The value whose bytes are all 0.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain`: every bit pattern is a value.
    unsafe { std::mem::zeroed() }
}

/// The bytes of `values`.
#[inline]
pub(crate) fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain`: the bytes of the values, none of them padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of `values`, for writing.
#[inline]
pub(crate) fn bytes_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: `Plain`: the bytes of the values, none of them padding. Any bytes stored there are a
    // value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
