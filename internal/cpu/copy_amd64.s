//go:build !race

#include "textflag.h"

// func copyStrings(dst, src *byte, n int)
TEXT ·copyStrings(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	CLD
	REP
	MOVSB
	RET

// func Ticks() uint64
TEXT ·Ticks(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
