//go:build !race

#include "textflag.h"

// KERNEL is the body of all: INIT prepares constants, and STEP(x, y, t) leaves x op y in
// x, with x of in and y of inout. It may change y, t and Y14.
#define KERNEL(INIT, STEP) \
	MOVQ inout+0(FP), DI; \
	MOVQ in+8(FP), SI; \
	MOVQ n+16(FP), CX; \
	INIT; \
	SUBQ $128, CX; \
	JLT few; \
many: \
	VMOVDQU (SI), Y0; \
	VMOVDQU 32(SI), Y1; \
	VMOVDQU 64(SI), Y2; \
	VMOVDQU 96(SI), Y3; \
	VMOVDQU (DI), Y4; \
	VMOVDQU 32(DI), Y5; \
	VMOVDQU 64(DI), Y6; \
	VMOVDQU 96(DI), Y7; \
	STEP(Y0, Y4, Y8); \
	STEP(Y1, Y5, Y9); \
	STEP(Y2, Y6, Y10); \
	STEP(Y3, Y7, Y11); \
	VMOVDQU Y0, (DI); \
	VMOVDQU Y1, 32(DI); \
	VMOVDQU Y2, 64(DI); \
	VMOVDQU Y3, 96(DI); \
	ADDQ $128, SI; \
	ADDQ $128, DI; \
	SUBQ $128, CX; \
	JGE many; \
few: \
	ADDQ $128, CX; \
	JZ done; \
one: \
	VMOVDQU (SI), Y0; \
	VMOVDQU (DI), Y4; \
	STEP(Y0, Y4, Y8); \
	VMOVDQU Y0, (DI); \
	ADDQ $32, SI; \
	ADDQ $32, DI; \
	SUBQ $32, CX; \
	JNZ one; \
done: \
	VZEROUPPER; \
	RET

// Y15 is nothing, or the sign bits.
#define NOTHING NOP
#define SIGNS32 \
	VPCMPEQD Y15, Y15, Y15; \
	VPSLLD $31, Y15, Y15
#define SIGNS64 \
	VPCMPEQD Y15, Y15, Y15; \
	VPSLLQ $63, Y15, Y15

// Of two NaN the processor keeps the first operand, as it does in Go's loop: that of in.
#define ADDF32(x, y, t) VADDPS y, x, x
#define ADDF64(x, y, t) VADDPD y, x, x
#define MULF32(x, y, t) VMULPS y, x, x
#define MULF64(x, y, t) VMULPD y, x, x

// As Go does it: the instruction's minimum takes its second operand if one is NaN or both are
// zero. So it is done in both orders, and the bits are put together: NaN stays NaN, -0 is
// below 0. The maximum is the minimum with signs changed.
#define MINF32(x, y, t) \
	VMINPS y, x, t; \
	VMINPS x, t, x; \
	VORPS t, x, x
#define MINF64(x, y, t) \
	VMINPD y, x, t; \
	VMINPD x, t, x; \
	VORPD t, x, x
#define MAXF32(x, y, t) \
	VXORPS Y15, x, x; \
	VXORPS Y15, y, y; \
	MINF32(x, y, t); \
	VXORPS Y15, x, x
#define MAXF64(x, y, t) \
	VXORPD Y15, x, x; \
	VXORPD Y15, y, y; \
	MINF64(x, y, t); \
	VXORPD Y15, x, x

#define ADD8(x, y, t) VPADDB y, x, x
#define ADD16(x, y, t) VPADDW y, x, x
#define ADD32(x, y, t) VPADDD y, x, x
#define ADD64(x, y, t) VPADDQ y, x, x
#define MUL16(x, y, t) VPMULLW y, x, x
#define MUL32(x, y, t) VPMULLD y, x, x

// The lower half of the product from products of 32 bits.
#define MUL64(x, y, t) \
	VPSRLQ $32, x, t; \
	VPMULUDQ y, t, t; \
	VPSRLQ $32, y, Y14; \
	VPMULUDQ x, Y14, Y14; \
	VPADDQ Y14, t, t; \
	VPSLLQ $32, t, t; \
	VPMULUDQ y, x, x; \
	VPADDQ t, x, x

#define MAXS8(x, y, t) VPMAXSB y, x, x
#define MAXS16(x, y, t) VPMAXSW y, x, x
#define MAXS32(x, y, t) VPMAXSD y, x, x
#define MAXU8(x, y, t) VPMAXUB y, x, x
#define MAXU16(x, y, t) VPMAXUW y, x, x
#define MAXU32(x, y, t) VPMAXUD y, x, x
#define MAXS64(x, y, t) \
	VPCMPGTQ y, x, t; \
	VBLENDVPD t, x, y, x
#define MAXU64(x, y, t) \
	VPXOR Y15, x, t; \
	VPXOR Y15, y, Y14; \
	VPCMPGTQ Y14, t, t; \
	VBLENDVPD t, x, y, x
#define MINS8(x, y, t) VPMINSB y, x, x
#define MINS16(x, y, t) VPMINSW y, x, x
#define MINS32(x, y, t) VPMINSD y, x, x
#define MINU8(x, y, t) VPMINUB y, x, x
#define MINU16(x, y, t) VPMINUW y, x, x
#define MINU32(x, y, t) VPMINUD y, x, x
#define MINS64(x, y, t) \
	VPCMPGTQ y, x, t; \
	VBLENDVPD t, y, x, x
#define MINU64(x, y, t) \
	VPXOR Y15, x, t; \
	VPXOR Y15, y, Y14; \
	VPCMPGTQ Y14, t, t; \
	VBLENDVPD t, y, x, x
#define ANDB(x, y, t) VPAND y, x, x
#define ORB(x, y, t) VPOR y, x, x
#define XORB(x, y, t) VPXOR y, x, x

// func sum8(inout, in *byte, n int)
TEXT ·sum8(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, ADD8)

// func sum16(inout, in *byte, n int)
TEXT ·sum16(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, ADD16)

// func sum32(inout, in *byte, n int)
TEXT ·sum32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, ADD32)

// func sum64(inout, in *byte, n int)
TEXT ·sum64(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, ADD64)

// func sumF32(inout, in *byte, n int)
TEXT ·sumF32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, ADDF32)

// func sumF64(inout, in *byte, n int)
TEXT ·sumF64(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, ADDF64)

// func prod16(inout, in *byte, n int)
TEXT ·prod16(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MUL16)

// func prod32(inout, in *byte, n int)
TEXT ·prod32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MUL32)

// func prod64(inout, in *byte, n int)
TEXT ·prod64(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MUL64)

// func prodF32(inout, in *byte, n int)
TEXT ·prodF32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MULF32)

// func prodF64(inout, in *byte, n int)
TEXT ·prodF64(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MULF64)

// func maxInt8(inout, in *byte, n int)
TEXT ·maxInt8(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MAXS8)

// func maxInt16(inout, in *byte, n int)
TEXT ·maxInt16(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MAXS16)

// func maxInt32(inout, in *byte, n int)
TEXT ·maxInt32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MAXS32)

// func maxUint8(inout, in *byte, n int)
TEXT ·maxUint8(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MAXU8)

// func maxUint16(inout, in *byte, n int)
TEXT ·maxUint16(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MAXU16)

// func maxUint32(inout, in *byte, n int)
TEXT ·maxUint32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MAXU32)

// func maxInt64(inout, in *byte, n int)
TEXT ·maxInt64(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MAXS64)

// func maxUint64(inout, in *byte, n int)
TEXT ·maxUint64(SB), NOSPLIT, $0-24
	KERNEL(SIGNS64, MAXU64)

// func maxF32(inout, in *byte, n int)
TEXT ·maxF32(SB), NOSPLIT, $0-24
	KERNEL(SIGNS32, MAXF32)

// func maxF64(inout, in *byte, n int)
TEXT ·maxF64(SB), NOSPLIT, $0-24
	KERNEL(SIGNS64, MAXF64)

// func minInt8(inout, in *byte, n int)
TEXT ·minInt8(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINS8)

// func minInt16(inout, in *byte, n int)
TEXT ·minInt16(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINS16)

// func minInt32(inout, in *byte, n int)
TEXT ·minInt32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINS32)

// func minUint8(inout, in *byte, n int)
TEXT ·minUint8(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINU8)

// func minUint16(inout, in *byte, n int)
TEXT ·minUint16(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINU16)

// func minUint32(inout, in *byte, n int)
TEXT ·minUint32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINU32)

// func minInt64(inout, in *byte, n int)
TEXT ·minInt64(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINS64)

// func minUint64(inout, in *byte, n int)
TEXT ·minUint64(SB), NOSPLIT, $0-24
	KERNEL(SIGNS64, MINU64)

// func minF32(inout, in *byte, n int)
TEXT ·minF32(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINF32)

// func minF64(inout, in *byte, n int)
TEXT ·minF64(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, MINF64)

// func andBits(inout, in *byte, n int)
TEXT ·andBits(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, ANDB)

// func orBits(inout, in *byte, n int)
TEXT ·orBits(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, ORB)

// func xorBits(inout, in *byte, n int)
TEXT ·xorBits(SB), NOSPLIT, $0-24
	KERNEL(NOTHING, XORB)
