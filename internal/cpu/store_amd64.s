//go:build !race

#include "textflag.h"

// func Barrier()
TEXT ·Barrier(SB), NOSPLIT, $0-0
	LOCK // cheaper than MFENCE
	ADDL $0, 0(SP)
	RET

// func PrefetchWrite(p *uint64)
TEXT ·PrefetchWrite(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	// PREFETCHW (AX), which the assembler does not know
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08
	RET
