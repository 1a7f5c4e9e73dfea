//! The processor: registers, and what each instruction does to them.
//!
//! # Guarantee
//! An instruction that traps has changed nothing. RV64GC but for what only machine and supervisor mode have.
//!
//! Source: The RISC-V Instruction Set Manual, volume I.

use crate::expand::expand;
use crate::memory::{Fault, Memory};

/// Why the processor can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// An access can't be made.
    Memory(Fault),
    /// There is no such instruction.
    Illegal(u32),
    /// `ecall`.
    Call,
    /// `ebreak`.
    Break,
}

impl From<Fault> for Trap {
    fn from(fault: Fault) -> Self {
        Self::Memory(fault)
    }
}

/// A processor's state.
pub(crate) struct Hart {
    pub(crate) x: [u64; 32],
    pub(crate) f: [u64; 32],
    pub(crate) pc: u64,
    pub(crate) fcsr: u32,
    /// What a load-reserved saw, and where.
    reservation: Option<(u64, u64)>,
    pub(crate) nr_instructions: u64,
}

const fn i_immediate(code: u32) -> u64 {
    (code as i32 >> 20) as i64 as u64
}

const fn s_immediate(code: u32) -> u64 {
    ((code as i32 >> 25 << 5) | (code >> 7 & 0x1f) as i32) as i64 as u64
}

const fn b_immediate(code: u32) -> u64 {
    let low = (code >> 7 & 1) << 11 | (code >> 25 & 0x3f) << 5 | (code >> 8 & 0xf) << 1;
    ((code as i32 >> 31 << 12) | low as i32) as i64 as u64
}

const fn j_immediate(code: u32) -> u64 {
    let low = code & 0xf_f000 | (code >> 20 & 1) << 11 | (code >> 21 & 0x3ff) << 1;
    ((code as i32 >> 31 << 20) | low as i32) as i64 as u64
}

const fn word(value: u64) -> u64 {
    value as i32 as i64 as u64
}

impl Hart {
    pub(crate) fn new(pc: u64, stack: u64) -> Self {
        let mut x = [0; 32];
        x[2] = stack;
        Self { x, f: [0; 32], pc, fcsr: 0, reservation: None, nr_instructions: 0 }
    }

    /// Sets a register; the first stays 0.
    #[inline(always)]
    pub(crate) fn set(&mut self, register: usize, value: u64) {
        if register != 0 {
            self.x[register] = value;
        }
    }

    /// Runs instructions until one traps, at most `most` of them.
    pub(crate) fn run(&mut self, memory: &mut Memory<'_>, most: u64) -> Result<(), Trap> {
        for _ in 0..most {
            self.step(memory)?;
            self.nr_instructions += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn step(&mut self, memory: &mut Memory<'_>) -> Result<(), Trap> {
        let first = memory.fetch(self.pc)?;
        let (code, next) = match first & 3 {
            3 => {
                let second = memory.fetch(self.pc.wrapping_add(2))?;
                (u32::from(second) << 16 | u32::from(first), self.pc.wrapping_add(4))
            }
            _ => (expand(first).ok_or(Trap::Illegal(u32::from(first)))?, self.pc.wrapping_add(2)),
        };
        let [rd, rs1, rs2] = [code >> 7, code >> 15, code >> 20].map(|bits| bits as usize & 31);
        let (funct3, funct7) = (code >> 12 & 7, code >> 25);
        let (a, b) = (self.x[rs1], self.x[rs2]);
        let mut pc = next;
        match code & 0x7f {
            0x03 => {
                let address = a.wrapping_add(i_immediate(code));
                let value = match funct3 {
                    0 => memory.load::<i8>(address)? as i64 as u64,
                    1 => memory.load::<i16>(address)? as i64 as u64,
                    2 => memory.load::<i32>(address)? as i64 as u64,
                    3 => memory.load::<u64>(address)?,
                    4 => u64::from(memory.load::<u8>(address)?),
                    5 => u64::from(memory.load::<u16>(address)?),
                    6 => u64::from(memory.load::<u32>(address)?),
                    _ => return Err(Trap::Illegal(code)),
                };
                self.set(rd, value);
            }
            0x23 => {
                let address = a.wrapping_add(s_immediate(code));
                match funct3 {
                    0 => memory.store(address, b as u8)?,
                    1 => memory.store(address, b as u16)?,
                    2 => memory.store(address, b as u32)?,
                    3 => memory.store(address, b)?,
                    _ => return Err(Trap::Illegal(code)),
                }
            }
            0x13 => {
                let immediate = i_immediate(code);
                let shift = code >> 20 & 63;
                let value = match (funct3, code >> 26) {
                    (0, _) => a.wrapping_add(immediate),
                    (1, 0) => a << shift,
                    (2, _) => u64::from((a as i64) < immediate as i64),
                    (3, _) => u64::from(a < immediate),
                    (4, _) => a ^ immediate,
                    (5, 0) => a >> shift,
                    (5, 0x10) => (a as i64 >> shift) as u64,
                    (6, _) => a | immediate,
                    (7, _) => a & immediate,
                    _ => return Err(Trap::Illegal(code)),
                };
                self.set(rd, value);
            }
            0x1b => {
                let shift = code >> 20 & 31;
                let value = match (funct3, funct7) {
                    (0, _) => word(a.wrapping_add(i_immediate(code))),
                    (1, 0) => word(a << shift),
                    (5, 0) => word(u64::from(a as u32 >> shift)),
                    (5, 0x20) => (a as i32 >> shift) as i64 as u64,
                    _ => return Err(Trap::Illegal(code)),
                };
                self.set(rd, value);
            }
            0x33 => {
                let value = operate(funct3, funct7, a, b).ok_or(Trap::Illegal(code))?;
                self.set(rd, value);
            }
            0x3b => {
                let value = operate_word(funct3, funct7, a, b).ok_or(Trap::Illegal(code))?;
                self.set(rd, value);
            }
            0x37 => self.set(rd, word(u64::from(code & 0xffff_f000))),
            0x17 => self.set(rd, self.pc.wrapping_add(word(u64::from(code & 0xffff_f000)))),
            0x6f => {
                pc = self.pc.wrapping_add(j_immediate(code));
                self.set(rd, next);
            }
            0x67 if funct3 == 0 => {
                pc = a.wrapping_add(i_immediate(code)) & !1;
                self.set(rd, next);
            }
            0x63 => {
                let is_taken = match funct3 {
                    0 => a == b,
                    1 => a != b,
                    4 => (a as i64) < b as i64,
                    5 => a as i64 >= b as i64,
                    6 => a < b,
                    7 => a >= b,
                    _ => return Err(Trap::Illegal(code)),
                };
                if is_taken {
                    pc = self.pc.wrapping_add(b_immediate(code));
                }
            }
            0x2f => self.atomic(memory, code)?,
            0x07 => {
                let address = a.wrapping_add(i_immediate(code));
                self.f[rd] = match funct3 {
                    2 => 0xffff_ffff_0000_0000 | u64::from(memory.load::<u32>(address)?),
                    3 => memory.load(address)?,
                    _ => return Err(Trap::Illegal(code)),
                };
            }
            0x27 => {
                let address = a.wrapping_add(s_immediate(code));
                match funct3 {
                    2 => memory.store(address, self.f[rs2] as u32)?,
                    3 => memory.store(address, self.f[rs2])?,
                    _ => return Err(Trap::Illegal(code)),
                }
            }
            0x43 | 0x47 | 0x4b | 0x4f => self.fuse(code)?,
            0x53 => self.operate(code)?,
            // One hart sees its own accesses in order.
            0x0f => {}
            0x73 => match code {
                0x73 => return Err(Trap::Call),
                0x10_0073 => return Err(Trap::Break),
                _ => self.control(code, funct3, rd, rs1)?,
            },
            _ => return Err(Trap::Illegal(code)),
        }
        self.pc = pc;
        Ok(())
    }

    /// Goes on behind an `ecall`.
    pub(crate) fn skip_call(&mut self) {
        self.pc = self.pc.wrapping_add(4);
    }

    fn atomic(&mut self, memory: &mut Memory<'_>, code: u32) -> Result<(), Trap> {
        let [rd, rs1, rs2] = [code >> 7, code >> 15, code >> 20].map(|bits| bits as usize & 31);
        let (address, operand) = (self.x[rs1], self.x[rs2]);
        let is_double = match code >> 12 & 7 {
            2 => false,
            3 => true,
            _ => return Err(Trap::Illegal(code)),
        };
        let load = |memory: &mut Memory<'_>| match is_double {
            true => memory.load::<u64>(address),
            false => memory.load::<i32>(address).map(|value| value as i64 as u64),
        };
        let store = |memory: &mut Memory<'_>, value: u64| match is_double {
            true => memory.store(address, value),
            false => memory.store(address, value as u32),
        };
        match code >> 27 {
            2 => {
                let value = load(memory)?;
                self.reservation = Some((address, value));
                self.set(rd, value);
            }
            3 => {
                let seen = self.reservation.take();
                let is_kept = seen == Some((address, load(memory)?));
                if is_kept {
                    store(memory, operand)?;
                }
                self.set(rd, u64::from(!is_kept));
            }
            operation => {
                let before = load(memory)?;
                let (a, b) = if is_double { (before, operand) } else { (before, word(operand)) };
                let after = match operation {
                    0 => a.wrapping_add(b),
                    1 => b,
                    4 => a ^ b,
                    8 => a | b,
                    0x0c => a & b,
                    0x10 => (a as i64).min(b as i64) as u64,
                    0x14 => (a as i64).max(b as i64) as u64,
                    // Words are sign-extended both, so that their order without signs stays.
                    0x18 => a.min(b),
                    0x1c => a.max(b),
                    _ => return Err(Trap::Illegal(code)),
                };
                store(memory, after)?;
                self.set(rd, before);
            }
        }
        Ok(())
    }

    /// Reads and writes a control register.
    fn control(&mut self, code: u32, funct3: u32, rd: usize, rs1: usize) -> Result<(), Trap> {
        let (register, operand) = (code >> 20, if funct3 & 4 != 0 { rs1 as u64 } else { self.x[rs1] });
        let old = match register {
            1 => u64::from(self.fcsr & 0x1f),
            2 => u64::from(self.fcsr >> 5 & 7),
            3 => u64::from(self.fcsr & 0xff),
            0xc00..=0xc02 => self.nr_instructions,
            _ => return Err(Trap::Illegal(code)),
        };
        let new = match funct3 & 3 {
            1 => operand,
            2 => old | operand,
            3 => old & !operand,
            _ => return Err(Trap::Illegal(code)),
        };
        let writes = funct3 & 3 == 1 || rs1 != 0;
        match register {
            1 if writes => self.fcsr = self.fcsr & 0xe0 | new as u32 & 0x1f,
            2 if writes => self.fcsr = self.fcsr & 0x1f | (new as u32 & 7) << 5,
            3 if writes => self.fcsr = new as u32 & 0xff,
            0xc00.. if writes => return Err(Trap::Illegal(code)),
            _ => {}
        }
        self.set(rd, old);
        Ok(())
    }
}

/// What OP does.
fn operate(funct3: u32, funct7: u32, a: u64, b: u64) -> Option<u64> {
    let shift = b & 63;
    let (sa, sb) = (a as i64, b as i64);
    Some(match (funct7, funct3) {
        (0, 0) => a.wrapping_add(b),
        (0x20, 0) => a.wrapping_sub(b),
        (0, 1) => a << shift,
        (0, 2) => u64::from(sa < sb),
        (0, 3) => u64::from(a < b),
        (0, 4) => a ^ b,
        (0, 5) => a >> shift,
        (0x20, 5) => (sa >> shift) as u64,
        (0, 6) => a | b,
        (0, 7) => a & b,
        (1, 0) => a.wrapping_mul(b),
        (1, 1) => ((i128::from(sa) * i128::from(sb)) >> 64) as u64,
        (1, 2) => ((i128::from(sa) * i128::from(b)) >> 64) as u64,
        (1, 3) => ((u128::from(a) * u128::from(b)) >> 64) as u64,
        (1, 4) => {
            if b == 0 {
                u64::MAX
            } else {
                sa.wrapping_div(sb) as u64
            }
        }
        (1, 5) => a.checked_div(b).unwrap_or(u64::MAX),
        (1, 6) => {
            if b == 0 {
                a
            } else {
                sa.wrapping_rem(sb) as u64
            }
        }
        (1, 7) => a.checked_rem(b).unwrap_or(a),
        _ => return None,
    })
}

/// What OP-32 does.
fn operate_word(funct3: u32, funct7: u32, a: u64, b: u64) -> Option<u64> {
    let shift = b & 31;
    let (ua, ub, sa, sb) = (a as u32, b as u32, a as i32, b as i32);
    Some(match (funct7, funct3) {
        (0, 0) => word(a.wrapping_add(b)),
        (0x20, 0) => word(a.wrapping_sub(b)),
        (0, 1) => word(u64::from(ua) << shift),
        (0, 5) => word(u64::from(ua >> shift)),
        (0x20, 5) => (sa >> shift) as i64 as u64,
        (1, 0) => word(a.wrapping_mul(b)),
        (1, 4) => {
            if sb == 0 {
                u64::MAX
            } else {
                sa.wrapping_div(sb) as i64 as u64
            }
        }
        (1, 5) => word(u64::from(ua.checked_div(ub).unwrap_or(u32::MAX))),
        (1, 6) => {
            if sb == 0 {
                word(a)
            } else {
                sa.wrapping_rem(sb) as i64 as u64
            }
        }
        (1, 7) => word(u64::from(ua.checked_rem(ub).unwrap_or(ua))),
        _ => return None,
    })
}
