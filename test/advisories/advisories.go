// Package advisories has the known vulnerabilities of ferry's dependencies, as a list for a test.
// A build of ferry uses the versions that the go.mod files require, so that the test reads
// those. The list is an excerpt of the Go vulnerability database. The test runs without a
// network, and govulncheck would need one.
//
// A clone of https://github.com/golang/vulndb in DIR renews the list:
//
//	go test ./test/advisories -vulndb DIR
//
// Only its tests use it.
package advisories

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"golang.org/x/mod/semver"
)

// Advisory is a range of bad versions of a module.
type Advisory struct {
	Module string
	// First bad version, such as v1.2.3; v0 for all before Fixed.
	Introduced string
	// First good version; empty if there is none.
	Fixed string
	// In the Go vulnerability database and as CVE, separated by commas.
	IDs string
}

// String returns the line of the list.
func (a Advisory) String() string {
	fixed := a.Fixed
	if fixed == "" {
		fixed = "-"
	}
	return fmt.Sprintf("%s %s %s %s", a.Module, a.Introduced, fixed, a.IDs)
}

// Affects reports whether a version of the module is bad.
func (a Advisory) Affects(version string) bool {
	return semver.Compare(version, a.Introduced) >= 0 && (a.Fixed == "" || semver.Compare(version, a.Fixed) < 0)
}

// Parse reads a list. Lines that begin with # are comments.
func Parse(r io.Reader) (list []Advisory, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 4 || !semver.IsValid(f[1]) || f[2] != "-" && !semver.IsValid(f[2]) {
			return nil, fmt.Errorf("line %d: %q: want MODULE FIRST-BAD FIRST-GOOD-OR-- IDS", n, line)
		}
		list = append(list, Advisory{f[0], f[1], strings.TrimPrefix(f[2], "-"), f[3]})
	}
	return list, lines.Err()
}
