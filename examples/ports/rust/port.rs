//! Two stages in plain Rust behind the C ABI of `../c/kvproof_port.h`; no crate is needed.
//!
//!     rustc --edition 2021 -O --crate-type cdylib -o librust_port.so port.rs
//!     kvproof verify ./librust_port.so
//!
//! Wrong on purpose: `--cfg broken_contiguous` takes every tensor for contiguous, `--cfg broken_unwritten` leaves the
//! log-sum-exp of a row to whatever its memory held.

use std::ffi::{c_char, c_int, c_void, CStr};

#[repr(C)]
pub struct Device {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
pub struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// DLPack's `DLTensor`; strides count elements.
#[repr(C)]
pub struct Tensor {
    data: *mut u8,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
pub union Value {
    tensor: *const Tensor,
    integer: i64,
    real: f64,
    string: *const c_char,
}

#[repr(C)]
pub struct Argument {
    name: *const c_char,
    kind: i32,
    value: Value,
}

#[repr(C)]
pub struct Output {
    name: *const c_char,
    tensor: *const Tensor,
}

const TENSOR: i32 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const ERROR: c_int = 2;

impl Tensor {
    fn shape(&self, axis: usize) -> usize {
        assert!(axis < self.ndim as usize);
        unsafe { *self.shape.add(axis) as usize }
    }

    /// The address of an element by its index: the tensor's own strides and offset, never its shape.
    fn at<T>(&self, index: &[usize]) -> *mut T {
        assert_eq!(index.len(), self.ndim as usize);
        assert_eq!(8 * std::mem::size_of::<T>(), self.dtype.bits as usize);
        let mut position = 0;
        for (axis, &i) in index.iter().enumerate() {
            if cfg!(broken_contiguous) {
                position = position * self.shape(axis) as isize + i as isize;
            } else {
                position += i as isize * unsafe { *self.strides.add(axis) } as isize;
            }
        }
        unsafe { self.data.add(self.byte_offset as usize).cast::<T>().offset(position) }
    }

    fn load(&self, index: &[usize]) -> f32 {
        match self.dtype.code {
            FLOAT => unsafe { *self.at::<f32>(index) },
            BFLOAT => f32::from_bits(u32::from(unsafe { *self.at::<u16>(index) }) << 16),
            code => panic!("dtype code {code}"),
        }
    }

    /// Rounds to nearest, ties to even, where the tensor is bfloat16.
    fn store(&self, value: f32, index: &[usize]) {
        if self.dtype.code == BFLOAT {
            let bits = value.to_bits();
            unsafe { *self.at::<u16>(index) = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16 };
        } else {
            unsafe { *self.at::<f32>(index) = value };
        }
    }
}

unsafe fn argument<'a>(arguments: *const Argument, count: c_int, name: &str) -> Result<&'a Tensor, String> {
    let all = std::slice::from_raw_parts(arguments, count as usize);
    all.iter()
        .find(|a| a.kind == TENSOR && CStr::from_ptr(a.name).to_bytes() == name.as_bytes())
        .map(|a| &*a.value.tensor)
        .ok_or(format!("expected a tensor {name}"))
}

unsafe fn output<'a>(results: *const Output, count: c_int, name: &str) -> Result<&'a Tensor, String> {
    let all = std::slice::from_raw_parts(results, count as usize);
    all.iter()
        .find(|r| CStr::from_ptr(r.name).to_bytes() == name.as_bytes())
        .map(|r| &*r.tensor)
        .ok_or(format!("expected a result {name}"))
}

/// 0, or the error's text in the caller's buffer. A panic must not cross into the caller.
unsafe fn answer(message: *mut c_char, size: c_int, body: impl FnOnce() -> Result<(), String>) -> c_int {
    let text = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(text)) => text,
        Err(_) => "panicked".to_string(),
    };
    let length = text.len().min(size as usize - 1);
    std::ptr::copy_nonoverlapping(text.as_ptr(), message.cast::<u8>(), length);
    *message.add(length) = 0;
    ERROR
}

/// outputs [S,H,G,d], lses [S,H,G] -> output [H,G,d], lse [H,G]; a split without tokens has lse -inf.
///
/// # Safety
/// Called by `kvproof` with valid arguments.
#[no_mangle]
pub unsafe extern "C" fn kvproof_merge_attention(
    arguments: *const Argument,
    argument_count: c_int,
    results: *const Output,
    result_count: c_int,
    message: *mut c_char,
    message_size: c_int,
) -> c_int {
    answer(message, message_size, || {
        let outputs = argument(arguments, argument_count, "outputs")?;
        let lses = argument(arguments, argument_count, "lses")?;
        let merged = output(results, result_count, "output")?;
        let lse = output(results, result_count, "lse")?;
        for h in 0..outputs.shape(1) {
            for g in 0..outputs.shape(2) {
                let masses: Vec<f32> = (0..outputs.shape(0)).map(|s| lses.load(&[s, h, g])).collect();
                let top = masses.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let weigh = |mass: &f32| if top.is_infinite() { 0.0 } else { (mass - top).exp() };
                let weights: Vec<f32> = masses.iter().map(weigh).collect();
                let total: f32 = weights.iter().sum();
                for i in 0..outputs.shape(3) {
                    let terms = weights.iter().enumerate().filter(|(_, &w)| w > 0.0);
                    let sum: f32 = terms.map(|(s, w)| w * outputs.load(&[s, h, g, i])).sum();
                    merged.store(if total > 0.0 { sum / total } else { 0.0 }, &[h, g, i]);
                }
                if !cfg!(broken_unwritten) {
                    lse.store(if total > 0.0 { top + total.ln() } else { f32::NEG_INFINITY }, &[h, g]);
                }
            }
        }
        Ok(())
    })
}

/// basis_bytes [H,P,r,d/2] -> basis_codes [H,P,d,r]; the lower nibble is the even channel, two's complement.
///
/// # Safety
/// Called by `kvproof` with valid arguments.
#[no_mangle]
pub unsafe extern "C" fn kvproof_locks_unpack_basis(
    arguments: *const Argument,
    argument_count: c_int,
    results: *const Output,
    result_count: c_int,
    message: *mut c_char,
    message_size: c_int,
) -> c_int {
    answer(message, message_size, || {
        let bytes = argument(arguments, argument_count, "basis_bytes")?;
        let codes = output(results, result_count, "basis_codes")?;
        for h in 0..bytes.shape(0) {
            for p in 0..bytes.shape(1) {
                for column in 0..bytes.shape(2) {
                    for half in 0..bytes.shape(3) {
                        let both = *bytes.at::<u8>(&[h, p, column, half]);
                        *codes.at::<i8>(&[h, p, 2 * half, column]) = ((both << 4) as i8) >> 4;
                        *codes.at::<i8>(&[h, p, 2 * half + 1, column]) = (both as i8) >> 4;
                    }
                }
            }
        }
        Ok(())
    })
}

#[no_mangle]
pub extern "C" fn kvproof_declare() -> *const c_void {
    c"{\"DTYPES\": [\"float32\", \"bfloat16\"]}".as_ptr().cast()
}
