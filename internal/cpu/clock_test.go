package cpu

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMonotonic_AgreesWithUptime(t *testing.T) {
	before := Monotonic()
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skip(err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	after := Monotonic()
	// /proc/uptime includes suspended time and has two decimals.
	if up := time.Duration(seconds * 1e9); before <= 0 || after < before || before > up+20*time.Millisecond {
		t.Errorf("%v, then %v; the machine is up for %v", before, after, up)
	}
}

func TestUsed_Work_Increases(t *testing.T) {
	before := Used()
	for sum, i := 0, 0; Used() == before; i++ {
		sum += i
	}
	if before <= 0 {
		t.Errorf("used time %v", before)
	}
}
