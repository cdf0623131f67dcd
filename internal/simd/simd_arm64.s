//go:build !race

#include "textflag.h"

// STEP is an instruction of the class "three registers of the same type" (Arm A-profile
// manual, C4.1): Vi = Vi op V(i+4). The assembler has few of them by name.
#define STEP(code, i) WORD $(code | (i+4)<<16 | i<<5 | i)

// KERNEL is the body of all.
#define KERNEL(code) \
	MOVD inout+0(FP), R0; \
	MOVD in+8(FP), R1; \
	MOVD n+16(FP), R2; \
	SUBS $64, R2, R2; \
	BLT few; \
many: \
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]; \
	VLD1 (R0), [V4.B16, V5.B16, V6.B16, V7.B16]; \
	STEP(code, 0); \
	STEP(code, 1); \
	STEP(code, 2); \
	STEP(code, 3); \
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0); \
	SUBS $64, R2, R2; \
	BGE many; \
few: \
	ADDS $64, R2, R2; \
	BEQ done; \
	VLD1 (R1), [V0.B16, V1.B16]; \
	VLD1 (R0), [V4.B16, V5.B16]; \
	STEP(code, 0); \
	STEP(code, 1); \
	VST1 [V0.B16, V1.B16], (R0); \
done: \
	RET

// func sum8(inout, in *byte, n int)
TEXT ·sum8(SB), NOSPLIT, $0-24
	KERNEL(0x4e208400) // ADD 8

// func sum16(inout, in *byte, n int)
TEXT ·sum16(SB), NOSPLIT, $0-24
	KERNEL(0x4e608400) // ADD 16

// func sum32(inout, in *byte, n int)
TEXT ·sum32(SB), NOSPLIT, $0-24
	KERNEL(0x4ea08400) // ADD 32

// func sum64(inout, in *byte, n int)
TEXT ·sum64(SB), NOSPLIT, $0-24
	KERNEL(0x4ee08400) // ADD 64

// func sumF32(inout, in *byte, n int)
TEXT ·sumF32(SB), NOSPLIT, $0-24
	KERNEL(0x4e20d400) // FADD 32

// func sumF64(inout, in *byte, n int)
TEXT ·sumF64(SB), NOSPLIT, $0-24
	KERNEL(0x4e60d400) // FADD 64

// func prod8(inout, in *byte, n int)
TEXT ·prod8(SB), NOSPLIT, $0-24
	KERNEL(0x4e209c00) // MUL 8

// func prod16(inout, in *byte, n int)
TEXT ·prod16(SB), NOSPLIT, $0-24
	KERNEL(0x4e609c00) // MUL 16

// func prod32(inout, in *byte, n int)
TEXT ·prod32(SB), NOSPLIT, $0-24
	KERNEL(0x4ea09c00) // MUL 32

// func prodF32(inout, in *byte, n int)
TEXT ·prodF32(SB), NOSPLIT, $0-24
	KERNEL(0x6e20dc00) // FMUL 32

// func prodF64(inout, in *byte, n int)
TEXT ·prodF64(SB), NOSPLIT, $0-24
	KERNEL(0x6e60dc00) // FMUL 64

// func maxInt8(inout, in *byte, n int)
TEXT ·maxInt8(SB), NOSPLIT, $0-24
	KERNEL(0x4e206400) // SMAX 8

// func maxInt16(inout, in *byte, n int)
TEXT ·maxInt16(SB), NOSPLIT, $0-24
	KERNEL(0x4e606400) // SMAX 16

// func maxInt32(inout, in *byte, n int)
TEXT ·maxInt32(SB), NOSPLIT, $0-24
	KERNEL(0x4ea06400) // SMAX 32

// func maxUint8(inout, in *byte, n int)
TEXT ·maxUint8(SB), NOSPLIT, $0-24
	KERNEL(0x6e206400) // UMAX 8

// func maxUint16(inout, in *byte, n int)
TEXT ·maxUint16(SB), NOSPLIT, $0-24
	KERNEL(0x6e606400) // UMAX 16

// func maxUint32(inout, in *byte, n int)
TEXT ·maxUint32(SB), NOSPLIT, $0-24
	KERNEL(0x6ea06400) // UMAX 32

// func maxF32(inout, in *byte, n int)
TEXT ·maxF32(SB), NOSPLIT, $0-24
	KERNEL(0x4e20f400) // FMAX 32

// func maxF64(inout, in *byte, n int)
TEXT ·maxF64(SB), NOSPLIT, $0-24
	KERNEL(0x4e60f400) // FMAX 64

// func minInt8(inout, in *byte, n int)
TEXT ·minInt8(SB), NOSPLIT, $0-24
	KERNEL(0x4e206c00) // SMIN 8

// func minInt16(inout, in *byte, n int)
TEXT ·minInt16(SB), NOSPLIT, $0-24
	KERNEL(0x4e606c00) // SMIN 16

// func minInt32(inout, in *byte, n int)
TEXT ·minInt32(SB), NOSPLIT, $0-24
	KERNEL(0x4ea06c00) // SMIN 32

// func minUint8(inout, in *byte, n int)
TEXT ·minUint8(SB), NOSPLIT, $0-24
	KERNEL(0x6e206c00) // UMIN 8

// func minUint16(inout, in *byte, n int)
TEXT ·minUint16(SB), NOSPLIT, $0-24
	KERNEL(0x6e606c00) // UMIN 16

// func minUint32(inout, in *byte, n int)
TEXT ·minUint32(SB), NOSPLIT, $0-24
	KERNEL(0x6ea06c00) // UMIN 32

// func minF32(inout, in *byte, n int)
TEXT ·minF32(SB), NOSPLIT, $0-24
	KERNEL(0x4ea0f400) // FMIN 32

// func minF64(inout, in *byte, n int)
TEXT ·minF64(SB), NOSPLIT, $0-24
	KERNEL(0x4ee0f400) // FMIN 64

// func andBits(inout, in *byte, n int)
TEXT ·andBits(SB), NOSPLIT, $0-24
	KERNEL(0x4e201c00) // AND

// func orBits(inout, in *byte, n int)
TEXT ·orBits(SB), NOSPLIT, $0-24
	KERNEL(0x4ea01c00) // ORR

// func xorBits(inout, in *byte, n int)
TEXT ·xorBits(SB), NOSPLIT, $0-24
	KERNEL(0x6e201c00) // EOR
