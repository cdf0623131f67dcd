package ofi_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl"
)

// profileChild runs parts of tests that need a separate process:
//
//	handlers LIBRARY PROVIDER     open it, receive a signal, and recover from a fault
//	opens LIBRARY PROVIDER        open it, and print the layout
//	contained LIBRARY PROVIDER    the same without userfaultfd
//	serves LIBRARY PROVIDER JOB   open it, print its address, and receive messages until
//	                              standard input ends
//	calls LIBRARY PROVIDER JOB ADDRESS
//	                              send a message there, and print whether it was accepted
func profileChild(what string) error {
	part := append(strings.Fields(what), "", "", "")
	lib, provider := part[1], part[2]
	job := part[3]
	if job == "" {
		job = "job"
	}
	var rank int32
	if part[0] == "calls" {
		rank = 1
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if part[0] == "contained" {
		if err := testprov.Contain(); err != nil {
			return err
		}
	}
	m, err := openMember(job, rank, withProvider(lib, provider))
	if err != nil {
		return err
	}
	defer m.Close()
	switch part[0] {
	case "handlers":
		return takesSignals(&member{m: m}, term)
	case "opens", "contained":
		fmt.Println(m.Describe().Mode)
	case "serves":
		return serves(m)
	case "calls":
		return calls(m, job, part[4])
	}
	return nil
}

// takesSignals connects with its own process first.
func takesSignals(self *member, term <-chan os.Signal) error {
	to, err := self.m.Connect(framework.Peer{Incarnation: self.incarnation(), Proc: proc("job", 0), Blob: self.m.Blob()})
	if err != nil {
		return err
	}
	if _, err := self.m.Send(&newOnceOp().Op, to, mtl.Envelope{CID: 1}, make([]byte, 8), mtl.Standard); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return signalAndFault(ctx, term)
}

func serves(m mtl.Module) error {
	fmt.Printf("%x\n", m.Blob())
	ctx, over := context.WithCancel(context.Background())
	go func() {
		bufio.NewReader(os.Stdin).ReadByte() // Until the end of the input.
		over()
	}()
	r := newOnceOp()
	if err := m.Recv(&r.Op, mtl.NoEndpoint, mtl.Envelope{CID: 1, Source: mtl.AnySource, Tag: 1}, make([]byte, 1<<20)); err != nil {
		return err
	}
	for left := 1000; left > 0 && r.completions == 0; { // Messages arrive soon after their sends.
		if ctx.Err() != nil {
			left--
		}
		if m.Poll() == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if r.completions > 0 && r.Err == nil {
		fmt.Println("met")
	}
	<-ctx.Done()
	return nil
}

func calls(m mtl.Module, job, address string) error {
	blob, err := hex.DecodeString(address)
	if err != nil {
		return err
	}
	to, err := m.Connect(framework.Peer{Incarnation: framework.Incarnation{Nonce: 1}, Proc: proc(job, 0), Blob: blob})
	if err != nil {
		return err
	}
	s := newOnceOp()
	if _, err := m.Send(&s.Op, to, mtl.Envelope{CID: 1, Source: 1, Tag: 1}, make([]byte, 1<<20), mtl.Standard); err != nil {
		return err
	}
	for end := time.Now().Add(30 * time.Second); s.completions == 0; m.Poll() {
		if time.Now().After(end) {
			return errors.New("nobody takes it")
		}
	}
	return s.Err
}

// psm3 and opx install signal handlers, at different times. With those a nil pointer dereference ends the process
// instead of being recovered.
func TestProfile_SignalHandlers_AreRestored(t *testing.T) {
	lib := useProfiles(t, "psm3")
	for _, c := range [][]string{
		{"psm3"}, {"opx"}, {"cxi", "handlers=1"}, {"cxi", "handlers=2"}, {"cxi", "handlers=3"}, {"cxi", "handlers=4"},
	} {
		if text, err := runChild(t, "handlers "+lib+" "+c[0], testprov.Environment(c[0], c[1:]...)); err != nil {
			t.Errorf("%q: %v: %s", c, err, text)
		}
	}
}

// Variables let the kernel notify the cache or, without support in the kernel, disable it. If the user enables an unsafe cache, the self-test detects
// it.
func TestProfile_RegistrationCache_IsDisabledOrNotified(t *testing.T) {
	lib := useProfiles(t, "cxi")
	for _, provider := range []string{"cxi", "efa"} {
		environment := testprov.Environment(provider, "stale")
		for _, where := range []string{"opens", "contained"} {
			if text, err := runChild(t, where+" "+lib+" "+provider, environment); err != nil {
				t.Errorf("%s, %s: %v: %s", provider, where, err, text)
			}
		}
		kept := append(environment, "FI_MR_CACHE_MAX_COUNT=1024", "FI_MR_CACHE_MONITOR=memhooks", "FI_EFA_MR_CACHE_ENABLE=1")
		if text, err := runChild(t, "opens "+lib+" "+provider, kept); err == nil || !strings.Contains(text, "pages") {
			t.Errorf("%s, with a cache: %v: %s", provider, err, text)
		}
	}
}

// psm3 and opx use one key for all jobs of a machine by default.
func TestProfile_TwoJobs_DoNotConnect(t *testing.T) {
	lib := useProfiles(t, "psm3")
	for _, provider := range []string{"psm3", "opx"} {
		for job, meets := range map[string]bool{"job-of-one": true, "job-of-another": false} {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(append(os.Environ(), childVariable+"=profile serves "+lib+" "+provider+" job-of-one"), testprov.Environment(provider)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			if !lines.Scan() {
				t.Fatal("no address")
			}
			text, err := runChild(t, "calls "+lib+" "+provider+" "+job+" "+lines.Text(), testprov.Environment(provider))
			in.Close()
			met := lines.Scan()
			cmd.Wait()
			if met != meets || (err == nil) != meets {
				t.Errorf("%s, %s calls job-of-one: met: %t; %v: %s", provider, job, met, err, text)
			}
		}
	}
}

// The child writes one line with the name of the library.
func TestProfile_LibraryCrashes_EndsOneProcess(t *testing.T) {
	lib := useProfiles(t, "cxi")
	text, err := runChild(t, "opens "+lib+" cxi", testprov.Environment("cxi", "crash"))
	if err == nil || !strings.Contains(err.Error(), "segmentation fault") || !strings.Contains(text, lib+" crashed the process") || strings.Count(text, "\n") != 1 {
		t.Errorf("%v: %s", err, text)
	}
}
