package framework

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. Its text is a plain number or a whole number of binary units, for example 64KiB or 4MiB. Decimal units (kB, MB) are
// rejected, because their meaning is ambiguous.
type Size int64

// The binary units.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

var sizeUnits = [...]struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// String returns the shortest text that ParseSize reads as exactly s.
func (s Size) String() string {
	if s != 0 {
		for _, u := range sizeUnits {
			if u.size > 1 && s%u.size == 0 {
				return strconv.FormatInt(int64(s/u.size), 10) + u.name
			}
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// ParseSize parses a Size. Units are case-insensitive. A space before the unit is allowed, a negative size is not.
func ParseSize(text string) (Size, error) {
	digits, unit := strings.TrimSpace(text), Size(1)
	for _, u := range sizeUnits {
		if n := len(digits) - len(u.name); n > 0 && strings.EqualFold(digits[n:], u.name) {
			digits, unit = strings.TrimSpace(digits[:n]), u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size such as 4096, 64KiB or 4MiB", text)
	}
	if Size(n) > math.MaxInt64/unit {
		return 0, fmt.Errorf("size %q does not fit into 63 bits", text)
	}
	return Size(n) * unit, nil
}
