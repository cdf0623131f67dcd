package advisories

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var vulndb = flag.String("vulndb", "", "renew "+listFile+" from this clone of github.com/golang/vulndb")

// entry is the part of a report in the format of osv.dev that the list needs.
type entry struct {
	ID        string
	Withdrawn string
	Aliases   []string
	Affected  []struct {
		Package struct{ Name string }
		Ranges  []struct {
			Events []struct{ Introduced, Fixed string }
		}
	}
}

// advisories returns those of an entry about some modules.
func (e entry) advisories(about map[string]bool) (list []Advisory) {
	ids := []string{e.ID}
	for _, alias := range e.Aliases {
		if strings.HasPrefix(alias, "CVE-") {
			ids = append(ids, alias)
		}
	}
	for _, a := range e.Affected {
		if !about[a.Package.Name] || e.Withdrawn != "" {
			continue
		}
		for _, r := range a.Ranges {
			for _, event := range r.Events {
				switch {
				case event.Introduced == "0":
					list = append(list, Advisory{a.Package.Name, "v0.0.0-0", "", strings.Join(ids, ",")})
				case event.Introduced != "":
					list = append(list, Advisory{a.Package.Name, "v" + event.Introduced, "", strings.Join(ids, ",")})
				case event.Fixed != "" && len(list) > 0:
					list[len(list)-1].Fixed = "v" + event.Fixed
				}
			}
		}
	}
	return list
}

// modules returns the modules of all go.sum files, which contain the whole graph.
func modules(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range goMods(t) {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			path, _, _ := strings.Cut(line, " ")
			all[path] = true
		}
	}
	return all
}

// renew writes the list.
func renew(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(*vulndb, "data/osv/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no data/osv/*.json (%v): want a clone of github.com/golang/vulndb", *vulndb, err)
	}
	about, newest := modules(t), ""
	var lines []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		newest = max(newest, e.ID)
		for _, a := range e.advisories(about) {
			lines = append(lines, a.String())
		}
	}
	slices.Sort(lines)
	head := "# Vulnerabilities of the modules in ferry's go.sum files, from https://github.com/golang/vulndb (CC-BY 4.0)\n" +
		"# up to " + newest + ": module, first bad version, first good one, ids. Do not edit: go test ./test/advisories -vulndb DIR\n"
	if err := os.WriteFile(listFile, []byte(head+strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
}
