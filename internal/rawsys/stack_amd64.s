//go:build linux && amd64 && cgo && !race && !msan && !asan

#include "textflag.h"

// func call(f unsafe.Pointer, stack uintptr, a, b, c unsafe.Pointer) int32
//
// C preserves BX and BP, among others. Assembly functions of Go preserve only SP and BP.
TEXT ·call(SB), NOSPLIT, $0-44
	MOVQ f+0(FP), AX
	MOVQ stack+8(FP), CX
	MOVQ a+16(FP), DI
	MOVQ b+24(FP), SI
	MOVQ c+32(FP), DX
	MOVQ SP, BX
	MOVQ CX, SP
	CALL AX
	MOVQ BX, SP
	MOVL AX, ret+40(FP)
	RET
