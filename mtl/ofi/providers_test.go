package ofi

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
)

// pageRows returns the rows of the table in docs/provider-defects.md.
func pageRows() (all []string) {
	for _, p := range known {
		if p.IsUntested {
			all = append(all, fmt.Sprintf("| %s | all | never tested with its hardware | relies on the self-test | | |", p.Name))
		}
		for _, f := range p.Quirks {
			all = append(all, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", p.Name, cmp.Or(f.Versions(), "all"), f.Description, f.Remedy, f.FoundIn, f.Evidence))
		}
	}
	return all
}

func TestKnown_DefectsPage_ShowsEachRow(t *testing.T) {
	text, err := os.ReadFile("../../docs/provider-defects.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "| provider | libfabric | quirk | ferry | found | shown by |\n| --- | --- | --- | --- | --- | --- |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	if want := strings.Join(pageRows(), "\n"); section != want {
		t.Errorf("docs/provider-defects.md has\n%s\nproviders.go has\n%s", section, want)
	}
}

func TestKnown_Table_IsConsistent(t *testing.T) {
	var named []string
	for _, p := range known {
		if _, err := path.Match(p.Name, ""); err != nil || p.Name != strings.ToLower(p.Name) || lookupProvider(strings.ToUpper(p.Name)).Name != p.Name {
			t.Errorf("%s: %v, or another row hides it", p.Name, err)
		}
		if _, err := path.Match(path.Base(p.Devices), ""); err != nil || p.WorksOnSockets && p.Devices == "" {
			t.Errorf("%s: its devices are %q: %v", p.Name, p.Devices, err)
		}
		if p.NeedsRequest {
			named = append(named, p.Name)
		}
		for _, f := range p.Quirks {
			if f.Description == "" || f.Remedy == "" || f.Evidence == "" || !regexp.MustCompile(`^20\d\d-\d\d$`).MatchString(f.FoundIn) || (f.FailingCases != "") != (f.Remedy == ExpectFailures) {
				t.Errorf("%s: %+v", p.Name, f)
			}
		}
	}
	// The default of provider_exclude is a tag, which can't be generated from the table.
	p := new(params)
	framework.FillDefaults(p)
	if slices.Sort(named); !slices.Equal(named, slices.Sorted(slices.Values(p.ProviderExclude))) {
		t.Errorf("provider_exclude is %q, and providers.go names %q", p.ProviderExclude, named)
	}
}

func TestFindQuirk_LaterVersion_FindsNone(t *testing.T) {
	for version, want := range map[libfabric.Version]bool{{Major: 1, Minor: 16}: true, v1_17: true, {Major: 1, Minor: 18}: false, {Major: 2}: false} {
		if _, ok := quirkReason("NET", RefuseProvider, version); ok != want {
			t.Errorf("net is refused in %v: %t", version, ok)
		}
	}
	size := func() int64 { f, _ := findQuirk("tcp;ofi_rxm", RaiseEager, v1_17); return f.EagerBytes }
	if got := size(); got != rxmBuffer {
		t.Errorf("messages of tcp;ofi_rxm come whole up to %d bytes", got)
	}
	if t.Setenv("FI_OFI_RXM_BUFFER_SIZE", "4096"); size() != 0 {
		t.Errorf("the environment changes the size of buffers, and messages of tcp;ofi_rxm come whole up to %d bytes", size())
	}
	between := Quirk{FirstVersion: libfabric.Version{Major: 1, Minor: 18}, LastVersion: libfabric.Version{Major: 2, Minor: 3}}
	if got := between.Versions(); got != ">=1.18, <=2.3" {
		t.Error(got)
	}
}
