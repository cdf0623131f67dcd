package worker

import (
	"fmt"
	"os"
	"runtime"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// busyLoad is the load per processor above which a hung case is retried.
const busyLoad = 2

// retryIfBusy reports whether a hung case runs again. It does once, on a busy machine.
func (a *attempt) retryIfBusy(row report.Row) bool {
	if _, isSecond := a.retryReasons[row.Case]; isSecond || row.Status != report.Timeout || !a.record.IsBad(*a.stack, row) {
		return false
	}
	load := a.currentLoad()
	if load <= busyLoad {
		return false
	}
	a.retryReasons[row.Case] = fmt.Sprintf("the first one did not end within %v at a load of %.1f per processor", a.hangLimit, load)
	a.isRepeated = true
	return true
}

// currentLoad returns the load per processor, or 0 if it is unknown.
func (p *Pool) currentLoad() float64 {
	if p.LoadPerProcessor != nil {
		return p.LoadPerProcessor()
	}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return 0
	}
	return load / float64(runtime.NumCPU())
}
