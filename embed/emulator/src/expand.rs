//! Compressed instructions, as the instructions that they stand for.
//!
//! Source: The RISC-V Instruction Set Manual, volume I, chapter "C Standard Extension for Compressed Instructions".

/// Takes bits `high..=low` of an instruction.
const fn bits(code: u16, high: u32, low: u32) -> u32 {
    (code as u32 >> low) & ((1 << (high - low + 1)) - 1)
}

/// Copies the sign bit at `bit` up.
const fn signed(value: u32, bit: u32) -> i32 {
    ((value << (31 - bit)) as i32) >> (31 - bit)
}

const fn r_type(funct7: u32, rs2: u32, rs1: u32, funct3: u32, rd: u32, opcode: u32) -> u32 {
    funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

const fn i_type(immediate: i32, rs1: u32, funct3: u32, rd: u32, opcode: u32) -> u32 {
    (immediate as u32 & 0xfff) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

const fn s_type(immediate: u32, rs2: u32, rs1: u32, funct3: u32, opcode: u32) -> u32 {
    (immediate >> 5 & 0x7f) << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | (immediate & 0x1f) << 7 | opcode
}

const fn b_type(immediate: i32, rs1: u32, funct3: u32) -> u32 {
    let offset = immediate as u32;
    (offset >> 12 & 1) << 31
        | (offset >> 5 & 0x3f) << 25
        | rs1 << 15
        | funct3 << 12
        | (offset >> 1 & 0xf) << 8
        | (offset >> 11 & 1) << 7
        | 0x63
}

const fn j_type(immediate: i32, rd: u32) -> u32 {
    let offset = immediate as u32;
    (offset >> 20 & 1) << 31
        | (offset >> 1 & 0x3ff) << 21
        | (offset >> 11 & 1) << 20
        | (offset >> 12 & 0xff) << 12
        | rd << 7
        | 0x6f
}

const LOAD: u32 = 0x03;
const LOAD_FP: u32 = 0x07;
const OP_IMM: u32 = 0x13;
const OP_IMM_32: u32 = 0x1b;
const STORE: u32 = 0x23;
const STORE_FP: u32 = 0x27;
const OP: u32 = 0x33;
const LUI: u32 = 0x37;
const OP_32: u32 = 0x3b;
const JALR: u32 = 0x67;

/// Returns the 32 bits that a compressed instruction stands for; nothing for a code that has no meaning.
pub(crate) fn expand(code: u16) -> Option<u32> {
    // The eight registers that three bits name.
    let (low, high) = (8 + bits(code, 4, 2), 8 + bits(code, 9, 7));
    let (rd, rs2) = (bits(code, 11, 7), bits(code, 6, 2));
    let word = bits(code, 12, 10) << 3 | bits(code, 6, 6) << 2 | bits(code, 5, 5) << 6;
    let double = bits(code, 12, 10) << 3 | bits(code, 6, 5) << 6;
    let immediate = signed(bits(code, 12, 12) << 5 | bits(code, 6, 2), 5);
    let shift = bits(code, 12, 12) << 5 | bits(code, 6, 2);
    Some(match (code & 3, code >> 13) {
        (0, 0) => {
            let offset =
                bits(code, 12, 11) << 4 | bits(code, 10, 7) << 6 | bits(code, 6, 6) << 2 | bits(code, 5, 5) << 3;
            if offset == 0 {
                return None;
            }
            i_type(offset as i32, 2, 0, low, OP_IMM)
        }
        (0, 1) => i_type(double as i32, high, 3, low, LOAD_FP),
        (0, 2) => i_type(word as i32, high, 2, low, LOAD),
        (0, 3) => i_type(double as i32, high, 3, low, LOAD),
        (0, 5) => s_type(double, low, high, 3, STORE_FP),
        (0, 6) => s_type(word, low, high, 2, STORE),
        (0, 7) => s_type(double, low, high, 3, STORE),
        (1, 0) => i_type(immediate, rd, 0, rd, OP_IMM),
        (1, 1) if rd != 0 => i_type(immediate, rd, 0, rd, OP_IMM_32),
        (1, 2) => i_type(immediate, 0, 0, rd, OP_IMM),
        (1, 3) if rd == 2 => {
            let offset = bits(code, 12, 12) << 9
                | bits(code, 6, 6) << 4
                | bits(code, 5, 5) << 6
                | bits(code, 4, 3) << 7
                | bits(code, 2, 2) << 5;
            if offset == 0 {
                return None;
            }
            i_type(signed(offset, 9), 2, 0, 2, OP_IMM)
        }
        (1, 3) if immediate != 0 => (immediate as u32) << 12 | rd << 7 | LUI,
        (1, 4) => match (bits(code, 11, 10), bits(code, 12, 12), bits(code, 6, 5)) {
            (0, ..) => i_type(shift as i32, high, 5, high, OP_IMM),
            (1, ..) => i_type(shift as i32 | 0x400, high, 5, high, OP_IMM),
            (2, ..) => i_type(immediate, high, 7, high, OP_IMM),
            (3, 0, 0) => r_type(0x20, low, high, 0, high, OP),
            (3, 0, 1) => r_type(0, low, high, 4, high, OP),
            (3, 0, 2) => r_type(0, low, high, 6, high, OP),
            (3, 0, 3) => r_type(0, low, high, 7, high, OP),
            (3, 1, 0) => r_type(0x20, low, high, 0, high, OP_32),
            (3, 1, 1) => r_type(0, low, high, 0, high, OP_32),
            _ => return None,
        },
        (1, 5) => {
            let offset = bits(code, 12, 12) << 11
                | bits(code, 11, 11) << 4
                | bits(code, 10, 9) << 8
                | bits(code, 8, 8) << 10
                | bits(code, 7, 7) << 6
                | bits(code, 6, 6) << 7
                | bits(code, 5, 3) << 1
                | bits(code, 2, 2) << 5;
            j_type(signed(offset, 11), 0)
        }
        (1, kind @ (6 | 7)) => {
            let offset = bits(code, 12, 12) << 8
                | bits(code, 11, 10) << 3
                | bits(code, 6, 5) << 6
                | bits(code, 4, 3) << 1
                | bits(code, 2, 2) << 5;
            b_type(signed(offset, 8), high, kind as u32 - 6)
        }
        (2, 0) => i_type(shift as i32, rd, 1, rd, OP_IMM),
        (2, 1) => {
            let offset = bits(code, 12, 12) << 5 | bits(code, 6, 5) << 3 | bits(code, 4, 2) << 6;
            i_type(offset as i32, 2, 3, rd, LOAD_FP)
        }
        (2, 2) if rd != 0 => {
            let offset = bits(code, 12, 12) << 5 | bits(code, 6, 4) << 2 | bits(code, 3, 2) << 6;
            i_type(offset as i32, 2, 2, rd, LOAD)
        }
        (2, 3) if rd != 0 => {
            let offset = bits(code, 12, 12) << 5 | bits(code, 6, 5) << 3 | bits(code, 4, 2) << 6;
            i_type(offset as i32, 2, 3, rd, LOAD)
        }
        (2, 4) => match (bits(code, 12, 12), rd, rs2) {
            (0, 0, 0) => return None,
            (0, _, 0) => i_type(0, rd, 0, 0, JALR),
            (0, ..) => r_type(0, rs2, 0, 0, rd, OP),
            // ebreak
            (_, 0, 0) => 0x0010_0073,
            (_, _, 0) => i_type(0, rd, 0, 1, JALR),
            _ => r_type(0, rs2, rd, 0, rd, OP),
        },
        (2, 5) => s_type(bits(code, 12, 10) << 3 | bits(code, 9, 7) << 6, rs2, 2, 3, STORE_FP),
        (2, 6) => s_type(bits(code, 12, 9) << 2 | bits(code, 8, 7) << 6, rs2, 2, 2, STORE),
        (2, 7) => s_type(bits(code, 12, 10) << 3 | bits(code, 9, 7) << 6, rs2, 2, 3, STORE),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::expand;

    /// Pairs as GNU's assembler makes them.
    #[test]
    fn compressed_instructions_are_what_the_assembler_says() {
        for (code, whole) in [
            (0x1141, 0xff01_0113), // addi sp,sp,-16
            (0xe406, 0x0011_3423), // sd ra,8(sp)
            (0x60a2, 0x0081_3083), // ld ra,8(sp)
            (0x8082, 0x0000_8067), // ret
            (0x4501, 0x0000_0513), // li a0,0
            (0x852e, 0x00b0_0533), // mv a0,a1
            (0x953e, 0x00f5_0533), // add a0,a0,a5
            (0x8f99, 0x40e7_87b3), // sub a5,a5,a4
            (0x4398, 0x0007_a703), // lw a4,0(a5)
            (0x9002, 0x0010_0073), // ebreak
        ] {
            assert_eq!(expand(code), Some(whole), "{code:#x}");
        }
        assert_eq!(expand(0), None);
    }
}
