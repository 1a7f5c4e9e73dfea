//! Floating-point instructions: the extensions F and D.
//!
//! # Guarantee
//! Arithmetic is the host's, in IEEE 754's default rounding. Conversions to integers round as the instruction says. The
//! accrued exceptions are the program's to write and read; arithmetic sets none.
//!
//! Source: The RISC-V Instruction Set Manual, volume I, chapters "F" and "D Standard Extension".

use crate::hart::{Hart, Trap};

const CANONICAL_NAN_32: u32 = 0x7fc0_0000;
const CANONICAL_NAN_64: u64 = 0x7ff8_0000_0000_0000;
/// The upper half of a register that holds a single.
const BOX: u64 = 0xffff_ffff_0000_0000;

impl Hart {
    /// Returns a single; a register that doesn't hold one is a NaN.
    pub(crate) fn single(&self, register: usize) -> f32 {
        let bits = self.f[register];
        f32::from_bits(if bits >> 32 == 0xffff_ffff { bits as u32 } else { CANONICAL_NAN_32 })
    }

    pub(crate) fn double(&self, register: usize) -> f64 {
        f64::from_bits(self.f[register])
    }

    fn set_single(&mut self, register: usize, value: f32) {
        let bits = if value.is_nan() { CANONICAL_NAN_32 } else { value.to_bits() };
        self.f[register] = BOX | u64::from(bits);
    }

    fn set_double(&mut self, register: usize, value: f64) {
        self.f[register] = if value.is_nan() { CANONICAL_NAN_64 } else { value.to_bits() };
    }

    /// Runs a fused multiply-add.
    pub(crate) fn fuse(&mut self, code: u32) -> Result<(), Trap> {
        let [rd, rs1, rs2, rs3] = [code >> 7, code >> 15, code >> 20, code >> 27].map(|bits| bits as usize & 31);
        let (negates_product, negates_addend) = match code & 0x7f {
            0x43 => (false, false),
            0x47 => (false, true),
            0x4b => (true, false),
            _ => (true, true),
        };
        let sign = |negates: bool| if negates { -1.0 } else { 1.0 };
        match code >> 25 & 3 {
            0 => {
                let product = self.single(rs1) * sign(negates_product) as f32;
                let addend = self.single(rs3) * sign(negates_addend) as f32;
                self.set_single(rd, product.mul_add(self.single(rs2), addend));
            }
            1 => {
                let product = self.double(rs1) * sign(negates_product);
                let addend = self.double(rs3) * sign(negates_addend);
                self.set_double(rd, product.mul_add(self.double(rs2), addend));
            }
            _ => return Err(Trap::Illegal(code)),
        }
        Ok(())
    }

    /// Runs an instruction of OP-FP.
    pub(crate) fn operate(&mut self, code: u32) -> Result<(), Trap> {
        let [rd, rs1, rs2] = [code >> 7, code >> 15, code >> 20].map(|bits| bits as usize & 31);
        let (operation, mode) = (code >> 27, code >> 12 & 7);
        match code >> 25 & 3 {
            0 => {
                let (a, b) = (self.single(rs1), self.single(rs2));
                let (a_bits, b_bits) = (a.to_bits(), b.to_bits());
                match operation {
                    0 => self.set_single(rd, a + b),
                    1 => self.set_single(rd, a - b),
                    2 => self.set_single(rd, a * b),
                    3 => self.set_single(rd, a / b),
                    0x0b => self.set_single(rd, a.sqrt()),
                    4 => {
                        let sign = sign_of(mode, u64::from(a_bits >> 31), u64::from(b_bits >> 31), code)? as u32;
                        self.f[rd] = BOX | u64::from(a_bits & 0x7fff_ffff | sign << 31);
                    }
                    5 => self.set_single(rd, least_or_most(f64::from(a), f64::from(b), mode) as f32),
                    8 => {
                        let value = self.double(rs1);
                        self.set_single(rd, value as f32);
                    }
                    0x14 => self.set(rd, compare(f64::from(a), f64::from(b), mode, code)?),
                    0x18 => {
                        let value = to_integer(f64::from(a), rs2, self.rounding(mode));
                        self.set(rd, value);
                    }
                    0x1a => {
                        let value = match rs2 {
                            0 => self.x[rs1] as i32 as f32,
                            1 => self.x[rs1] as u32 as f32,
                            2 => self.x[rs1] as i64 as f32,
                            _ => self.x[rs1] as f32,
                        };
                        self.set_single(rd, value);
                    }
                    0x1c if mode == 0 => {
                        let bits = self.f[rs1] as u32 as i32;
                        self.set(rd, bits as i64 as u64);
                    }
                    0x1c => {
                        let is_quiet = a_bits & 0x40_0000 != 0;
                        self.set(rd, class(f64::from(a), a.is_subnormal(), is_quiet));
                    }
                    0x1e => self.f[rd] = BOX | self.x[rs1] & !BOX,
                    _ => return Err(Trap::Illegal(code)),
                }
            }
            1 => {
                let (a, b) = (self.double(rs1), self.double(rs2));
                match operation {
                    0 => self.set_double(rd, a + b),
                    1 => self.set_double(rd, a - b),
                    2 => self.set_double(rd, a * b),
                    3 => self.set_double(rd, a / b),
                    0x0b => self.set_double(rd, a.sqrt()),
                    4 => {
                        let sign = sign_of(mode, a.to_bits() >> 63, b.to_bits() >> 63, code)?;
                        self.f[rd] = a.to_bits() & !(1 << 63) | sign << 63;
                    }
                    5 => self.set_double(rd, least_or_most(a, b, mode)),
                    8 => {
                        let value = self.single(rs1);
                        self.set_double(rd, f64::from(value));
                    }
                    0x14 => self.set(rd, compare(a, b, mode, code)?),
                    0x18 => {
                        let value = to_integer(a, rs2, self.rounding(mode));
                        self.set(rd, value);
                    }
                    0x1a => {
                        let value = match rs2 {
                            0 => f64::from(self.x[rs1] as i32),
                            1 => f64::from(self.x[rs1] as u32),
                            2 => self.x[rs1] as i64 as f64,
                            _ => self.x[rs1] as f64,
                        };
                        self.set_double(rd, value);
                    }
                    0x1c if mode == 0 => self.set(rd, self.f[rs1]),
                    0x1c => {
                        let is_quiet = a.to_bits() & 1 << 51 != 0;
                        self.set(rd, class(a, a.is_subnormal(), is_quiet));
                    }
                    0x1e => self.f[rd] = self.x[rs1],
                    _ => return Err(Trap::Illegal(code)),
                }
            }
            _ => return Err(Trap::Illegal(code)),
        }
        Ok(())
    }

    /// Returns the rounding mode of an instruction; 7 means the register's.
    fn rounding(&self, mode: u32) -> u32 {
        if mode == 7 { self.fcsr >> 5 & 7 } else { mode }
    }
}

/// Returns the sign that an injection gives: the second's, its opposite, or both's difference.
fn sign_of(mode: u32, a: u64, b: u64, code: u32) -> Result<u64, Trap> {
    match mode {
        0 => Ok(b),
        1 => Ok(b ^ 1),
        2 => Ok(a ^ b),
        _ => Err(Trap::Illegal(code)),
    }
}

/// Returns the smaller or larger of two; a NaN only if both are, and -0 is smaller than 0.
fn least_or_most(a: f64, b: f64, mode: u32) -> f64 {
    let is_first_least = if a == b { a.is_sign_negative() } else { a < b };
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if is_first_least == (mode == 0) => a,
        _ => b,
    }
}

fn compare(a: f64, b: f64, mode: u32, code: u32) -> Result<u64, Trap> {
    Ok(u64::from(match mode {
        0 => a <= b,
        1 => a < b,
        2 => a == b,
        _ => return Err(Trap::Illegal(code)),
    }))
}

/// Converts to one of four kinds of integers; what does not fit becomes the nearest that does, a NaN the largest.
fn to_integer(value: f64, kind: usize, rounding: u32) -> u64 {
    let rounded = match rounding {
        0 => value.round_ties_even(),
        2 => value.floor(),
        3 => value.ceil(),
        4 => value.round(),
        _ => value.trunc(),
    };
    match kind {
        0 if value.is_nan() => i32::MAX as u64,
        0 => rounded as i32 as i64 as u64,
        1 if value.is_nan() => u64::MAX,
        1 => rounded as u32 as i32 as i64 as u64,
        2 if value.is_nan() => i64::MAX as u64,
        2 => rounded as i64 as u64,
        _ if value.is_nan() => u64::MAX,
        _ => rounded as u64,
    }
}

/// Returns the bit of a number's class.
fn class(value: f64, is_subnormal: bool, is_quiet: bool) -> u64 {
    let negative = value.is_sign_negative();
    1 << match value {
        _ if value.is_nan() => {
            if is_quiet {
                9
            } else {
                8
            }
        }
        _ if value.is_infinite() => {
            if negative {
                0
            } else {
                7
            }
        }
        _ if value == 0.0 => {
            if negative {
                3
            } else {
                4
            }
        }
        _ if is_subnormal => {
            if negative {
                2
            } else {
                5
            }
        }
        _ => {
            if negative {
                1
            } else {
                6
            }
        }
    }
}
