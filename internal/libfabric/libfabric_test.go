package libfabric

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestLoadNamesWhatIsMissing(t *testing.T) {
	for _, path := range []string{"libnosuchfabric.so.1", "/nonexistent/libfabric.so.1", "libc.so.6"} {
		_, err := Load(path)
		if errors.Is(err, ErrNotBuilt) {
			t.Skip(err)
		}
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestVersionsCompare(t *testing.T) {
	for v, old := range map[Version]bool{{1, 16}: true, {1, 17}: false, {1, 22}: false, {2, 0}: false, {0, 99}: true} {
		if v.Old() != old {
			t.Errorf("%v: %v", v, v.Old())
		}
	}
}

// TestUnknownProviderIsAnEmptyList: it is for the caller to say what it means.
func TestUnknownProviderIsAnEmptyList(t *testing.T) {
	l, err := Load("libfabric.so.1")
	if err != nil {
		t.Skip(err)
	}
	infos, err := l.Infos("nosuch")
	if err != nil || len(infos.List) > 0 {
		t.Errorf("%v, %v", infos, err)
	}
}

// TestReasonIsTheProvidersOwn: not what the library says of others, or of
// parameters, or while another layer asks.
func TestReasonIsTheProvidersOwn(t *testing.T) {
	const log = `something else
libfabric:7:1795191319::core:core:ofi_register_provider():461<info> registering provider: shm (117.0)
libfabric:7:1795191319::psm2:core:psmx2_init_lib():233<info> no hfi device is found.
libfabric:7:1795191319::verbs:fabric:vrb_init_info():1346<info> no RDMA devices found
libfabric:7:1795191319::verbs:core:fi_param_get_():278<info> variable tx_size=<not set>
libfabric:7:1795191320:ofi_rxm:core:core:ofi_layering_ok():1110<info> Provider ofi_rxm is excluded
libfabric:7:1795191320::psm2:core:psmx2_fini():656<info> 
libfabric:7:1795191320::efa`
	for provider, want := range map[string]string{
		"verbs": "no RDMA devices found", "Verbs;ofi_rxm": "no RDMA devices found", "psm2": "no hfi device is found.", "efa": "", "nosuch": "",
	} {
		if got := LogReason(provider, log); got != want {
			t.Errorf("%s: %q, want %q", provider, got, want)
		}
	}
}

// TestLibraryThatIsAnotherIsNotKept: what has been loaded by mistake goes again.
func TestLibraryThatIsAnotherIsNotKept(t *testing.T) {
	const other = "libanl.so.1"
	mapped := func() bool {
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), other)
	}
	if mapped() {
		t.Skip("this program has it for another reason")
	}
	_, err := Load(other)
	if err == nil || !strings.Contains(err.Error(), "it has no fi_getinfo") {
		t.Skip(err)
	}
	if mapped() {
		t.Errorf("%s stays loaded", other)
	}
}
