package libfabric

import (
	"errors"
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
