//go:build cgo

package pmixc

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"slices"
	"unsafe"
)

// Spawn starts all processes of a or none, and returns their namespace. The server answers when it
// has accepted or refused them, or under some launchers when it has started them. If the context
// ends first, they may still start.
func (l *Library) Spawn(ctx context.Context, a App) (namespace string, err error) {
	const call = "PMIx_Spawn"
	if err := a.Check(); err != nil {
		return "", err
	}
	v, _ := l.Version()
	isIndependent := a.IsIndependent && !childSepVersion.After(v)
	a.Args, a.Env = slices.Clone(a.Args), slices.Clone(a.Env) // The caller may leave before the call runs.
	return runCall(ctx, l.calls, call, func() (string, error) {
		app := C.fpmix_app{cmd: C.CString(a.Program), argv: cStrings(append([]string{a.Program}, a.Args...)), env: cStrings(a.Env), maxprocs: C.int(a.N)}
		if a.Dir != "" {
			app.cwd = C.CString(a.Dir)
		}
		defer freeApp(&app)
		var name [C.FPMIX_NSPACE_ROOM]C.char
		var separate C.int
		if isIndependent {
			separate = 1
		}
		if err := l.check(call, C.fpmix_spawn(l.c, &app, separate, &name[0])); err != nil {
			return "", err
		}
		if name[0] == 0 {
			return "", fmt.Errorf("%s: the server has named no namespace", call)
		}
		return C.GoString(&name[0]), nil
	})
}

// cStrings allocates a list of C that ends with NULL.
func cStrings(all []string) **C.char {
	list := (**C.char)(C.calloc(C.size_t(len(all)+1), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	for i, s := range all {
		unsafe.Slice(list, len(all))[i] = C.CString(s)
	}
	return list
}

func freeApp(app *C.fpmix_app) {
	C.free(unsafe.Pointer(app.cmd))
	C.free(unsafe.Pointer(app.cwd))
	for _, list := range []**C.char{app.argv, app.env} {
		for at := list; *at != nil; at = (**C.char)(unsafe.Add(unsafe.Pointer(at), unsafe.Sizeof(*at))) {
			C.free(unsafe.Pointer(*at))
		}
		C.free(unsafe.Pointer(list))
	}
}
