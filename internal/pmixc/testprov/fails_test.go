package testprov_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/libtest"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/pmixc/testprov"
)

// failing has the calls of libpmix, with the errors of a failure, of a success without a result, and of a success with a count
// of results and no results. With an empty string no call fails.
var failing = []struct{ call, failed, nothing, noArray string }{
	{"PMIx_Get_version", "no version", "no version", "no version"},
	{"PMIx_Error_string", "", "", ""},
	{"PMIx_Init", "PMIx_Init: ERROR (-1)", "no namespace", "a namespace of 255 bytes"},
	{"PMIx_Initialized", "", "not initialized", ""},
	{"PMIx_Register_event_handler", "PMIx_Register_event_handler: ERROR (-1)", "no event", ""},
	{"PMIx_Put", "PMIx_Put: ERROR (-1)", "PMIx_Get: no value", ""},
	{"PMIx_Commit", "PMIx_Commit: ERROR (-1)", "", ""},
	{"PMIx_Get", "PMIx_Get: ERROR (-1)", "PMIx_Get: NOT-FOUND (-46)", "PMIx_Get: no value"},
	{"PMIx_Fence", "PMIx_Fence: ERROR (-1)", "no event", "an event without a process"},
	{"PMIx_Group_construct", "PMIx_Group_construct: ERROR (-1)", "PMIx_Group_construct: NOT-FOUND (-46)", "PMIx_Group_construct: NOT-FOUND (-46)"},
	{"PMIx_Query_info", "PMIx_Query_info: ERROR (-1)", "PMIx_Query_info: NOT-FOUND (-46)", "PMIx_Query_info: NOT-FOUND (-46)"},
	{"PMIx_Spawn", "PMIx_Spawn: ERROR (-1)", "PMIx_Spawn: the server has named no namespace", "spawned into a namespace of 255 bytes"},
	{"PMIx_Abort", "PMIx_Abort: ERROR (-1)", "", ""},
	{"PMIx_Finalize", "PMIx_Finalize: ERROR (-1)", "", ""},
}

// TestFails_EachCallOfLibpmix_ProcessLives makes each call fail in a child process that makes all calls.
func TestFails_EachCallOfLibpmix_ProcessLives(t *testing.T) {
	if err := pmixc.Built(); err != nil {
		t.Skip(err)
	}
	if libtest.IsChild() {
		if err := makeCalls(t.Context(), os.Getenv("LIBRARY")); err != nil {
			fmt.Println("FAILS " + strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return
	}
	lib := testprov.Library(t)
	check := func(fault, want string) {
		t.Run(fault, func(t *testing.T) {
			out, err := libtest.InChild(t, "TestFails_EachCallOfLibpmix_ProcessLives", testprov.Faults+"="+fault, "LIBRARY="+lib)
			line := regexp.MustCompile(`(?m)^FAILS .*`).FindString(out)
			switch {
			case err != nil:
				t.Fatalf("the process ends with %v:\n%s", err, out)
			case want == "" && line != "":
				t.Errorf("%s", line)
			case !strings.Contains(line, want):
				t.Errorf("no error %q: %s", want, line)
			}
			t.Logf("%s: %s", fault, cmp.Or(line, "no error"))
		})
	}
	check("", "")
	check("PMIx_Error_string,PMIx_Commit", "PMIx_Commit: no text (-1)")
	for _, f := range failing {
		check(f.call, f.failed)
		check(f.call+"=0", f.nothing)
		check(f.call+"=1", f.noArray)
	}
}

// TestFails_ListOfCalls_IsComplete compares the list with the calls that shim.c loads.
func TestFails_ListOfCalls_IsComplete(t *testing.T) {
	text, err := os.ReadFile("../shim.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`CALL\((PMIx\w+)\)`).FindAllSubmatch(text, -1) {
		if !slices.ContainsFunc(failing, func(f struct{ call, failed, nothing, noArray string }) bool { return f.call == string(m[1]) }) {
			t.Errorf("%s is not in the list", m[1])
		}
	}
}

// makeCalls makes all calls of libpmix and returns the errors. It continues after an error of an initialized library.
func makeCalls(ctx context.Context, path string) error {
	l, err := pmixc.Load(path)
	if err != nil {
		return err
	}
	if _, ok := l.Version(); !ok {
		return errors.New("no version")
	}
	me, err := l.Init(ctx)
	switch {
	case err != nil:
		return err
	case me.Namespace == "":
		return errors.New("no namespace")
	case me.Namespace != "job":
		return fmt.Errorf("a namespace of %d bytes", len(me.Namespace))
	case !l.Initialized():
		return errors.New("not initialized")
	}
	value := []byte("value")
	err = errors.Join(l.Watch(ctx, pmixc.ProcAborted), l.Put(ctx, "key", value), l.Commit(ctx))
	v, failed := l.Get(ctx, me, "key", 0)
	if failed == nil && string(v.Bytes) != string(value) {
		failed = errors.New("PMIx_Get: no value")
	}
	err = errors.Join(err, failed, l.Fence(ctx, me.Namespace, []uint32{0}, time.Second))
	if e, ok := l.NextEvent(); !ok {
		err = errors.Join(err, errors.New("no event"))
	} else if e.Proc.Namespace == "" {
		err = errors.Join(err, errors.New("an event without a process"))
	}
	_, failed = l.Construct(ctx, "group", me.Namespace, []uint32{0}, time.Second)
	err = errors.Join(err, failed)
	_, failed = l.Psets(ctx)
	err = errors.Join(err, failed)
	_, failed = l.Pset(ctx, "all")
	err = errors.Join(err, failed)
	namespace, failed := l.Spawn(ctx, pmixc.App{Program: "/bin/true", Args: []string{"argument"}, Env: []string{"NAME=value"}, N: 2, IsIndependent: true})
	if failed == nil && namespace != "spawned" {
		failed = fmt.Errorf("spawned into a namespace of %d bytes", len(namespace))
	}
	return errors.Join(err, failed, l.Abort(ctx, 1, "test"), l.Finalize(ctx))
}
