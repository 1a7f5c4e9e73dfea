//! Instructions of the kernel's virtual machine, put together one by one.
//!
//! # Guarantee
//! A program ends with `exit`, and every [`Assembly::leave_if`] leads there.
//!
//! # Source
//! `Documentation/bpf/standardization/instruction-set.rst` of Linux.

use std::os::fd::RawFd;

/// One instruction, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register. A call takes its arguments in `A1` to `A5`, and returns in `R0`; it destroys these.
#[derive(Clone, Copy, Debug)]
pub(super) enum Register {
    R0 = 0,
    A1 = 1,
    A2 = 2,
    A3 = 3,
    A4 = 4,
    A5 = 5,
    S6 = 6,
    S7 = 7,
    S8 = 8,
    S9 = 9,
    Frame = 10,
}

/// What a jump compares with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Comparison {
    Equal = 0x10,
    Above = 0x20,
    NotEqual = 0x50,
    NotAbove = 0xb0,
    /// Both taken as signed.
    Less = 0xc0,
}

/// An operation on a whole register.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Set = 0xb0,
}

const CLASS_ARITHMETIC: u8 = 0x07;
const CLASS_HALF_ARITHMETIC: u8 = 0x04;
const CLASS_JUMP: u8 = 0x05;
const FROM_REGISTER: u8 = 0x08;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_CONSTANT: u8 = 0x62;
const ATOMIC: u8 = 0xc3;
const LOAD_WIDE: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Added to a load or a store of a word.
const DOUBLE: u8 = 0x18;

/// What a wide constant stands for: a map, or a place in a map's first value.
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;

/// A program under construction.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    code: Vec<Instruction>,
    leaving: Vec<usize>,
}

impl Assembly {
    fn push(&mut self, code: u8, target: Register, source: u8, offset: i16, immediate: i32) {
        let registers = target as u8 | source << 4;
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    /// Applies an operation to a register and another.
    pub(super) fn apply(&mut self, operation: Operation, target: Register, source: Register) {
        self.push(operation as u8 | CLASS_ARITHMETIC | FROM_REGISTER, target, source as u8, 0, 0);
    }

    /// Applies an operation to a register and a constant.
    pub(super) fn apply_constant(&mut self, operation: Operation, target: Register, constant: i32) {
        self.push(operation as u8 | CLASS_ARITHMETIC, target, 0, 0, constant);
    }

    /// Sets a register to 32 bits that are all set.
    pub(super) fn set_half_ones(&mut self, target: Register) {
        self.push(Operation::Set as u8 | CLASS_HALF_ARITHMETIC, target, 0, 0, -1);
    }

    /// Loads 64 bits.
    pub(super) fn load(&mut self, target: Register, base: Register, offset: usize) {
        self.push(LOAD + DOUBLE, target, base as u8, offset as i16, 0);
    }

    /// Loads 64 bits that were stored in the frame.
    pub(super) fn load_kept(&mut self, target: Register, offset: i16) {
        self.push(LOAD + DOUBLE, target, Register::Frame as u8, offset, 0);
    }

    /// Loads 32 bits.
    pub(super) fn load_half(&mut self, target: Register, base: Register, offset: usize) {
        self.push(LOAD, target, base as u8, offset as i16, 0);
    }

    /// Stores 64 bits.
    pub(super) fn store(&mut self, base: Register, offset: i16, source: Register) {
        self.push(STORE + DOUBLE, base, source as u8, offset, 0);
    }

    /// Stores 32 bits.
    pub(super) fn store_half(&mut self, base: Register, offset: i16, source: Register) {
        self.push(STORE, base, source as u8, offset, 0);
    }

    /// Stores 64 bits that are known.
    pub(super) fn store_constant(&mut self, base: Register, offset: i16, constant: i32) {
        self.push(STORE_CONSTANT + DOUBLE, base, 0, offset, constant);
    }

    /// Stores 32 bits that are known.
    pub(super) fn store_half_constant(&mut self, base: Register, offset: i16, constant: i32) {
        self.push(STORE_CONSTANT, base, 0, offset, constant);
    }

    /// Sets the bits of a word that a register has, atomically.
    pub(super) fn set_bits(&mut self, base: Register, offset: usize, bits: Register) {
        const OR: i32 = 0x40;
        self.push(ATOMIC + DOUBLE, base, bits as u8, offset as i16, OR);
    }

    /// Adds a register to a word, atomically, and loads into the register what the word was before.
    pub(super) fn fetch_add(&mut self, base: Register, offset: usize, added: Register) {
        const ADD_AND_FETCH: i32 = 0x01;
        self.push(ATOMIC + DOUBLE, base, added as u8, offset as i16, ADD_AND_FETCH);
    }

    /// Loads the address of a map's only value.
    pub(super) fn load_value(&mut self, target: Register, map: RawFd) {
        self.push(LOAD_WIDE, target, MAP_VALUE, 0, map);
        self.code.push(Instruction::default());
    }

    /// Loads a map.
    pub(super) fn load_map(&mut self, target: Register, map: RawFd) {
        self.push(LOAD_WIDE, target, MAP, 0, map);
        self.code.push(Instruction::default());
    }

    /// Calls one of the kernel's helpers.
    pub(super) fn call(&mut self, helper: i32) {
        self.push(CALL, Register::R0, 0, 0, helper);
    }

    /// Ends the program if the comparison holds.
    pub(super) fn leave_if(&mut self, register: Register, comparison: Comparison, constant: i32) {
        self.leaving.push(self.code.len());
        self.push(comparison as u8 | CLASS_JUMP, register, 0, 0, constant);
    }

    /// Adds a part that [`Assembly::leave_if`] leaves instead of the program.
    pub(super) fn part(&mut self, body: impl FnOnce(&mut Self)) {
        let outer = std::mem::take(&mut self.leaving);
        body(self);
        self.land();
        self.leaving = outer;
    }

    /// Lets all that leaves go on here.
    fn land(&mut self) {
        let end = self.code.len();
        for place in self.leaving.drain(..) {
            self.code[place].offset = (end - place - 1) as i16;
        }
    }

    /// Ends the program with 0.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        self.land();
        self.apply_constant(Operation::Set, Register::R0, 0);
        self.push(EXIT, Register::R0, 0, 0, 0);
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_ends_a_part_or_the_program() {
        let mut code = Assembly::default();
        code.leave_if(Register::A1, Comparison::Equal, 0);
        code.part(|code| {
            code.leave_if(Register::A2, Comparison::Above, 1);
            code.apply(Operation::Set, Register::A3, Register::A2);
        });
        code.apply(Operation::Add, Register::A3, Register::A1);
        let code = code.finish();
        assert_eq!(code[0].offset, 3, "to `r0 = 0`");
        assert_eq!(code[1].offset, 1, "behind the part");
        assert_eq!(code.iter().map(|one| one.code).collect::<Vec<_>>(), [0x15, 0x25, 0xbf, 0x0f, 0xb7, 0x95]);
    }

    #[test]
    fn wide_constants_take_two_places_and_name_what_they_stand_for() {
        let mut code = Assembly::default();
        code.load_map(Register::A2, 7);
        code.load_value(Register::A3, 9);
        let code = code.finish();
        assert_eq!((code[0].registers, code[0].immediate), (0x12, 7));
        assert_eq!((code[2].registers, code[2].immediate), (0x23, 9));
        assert_eq!([code[1], code[3]], [Instruction::default(); 2]);
    }
}
