// Package matrix holds what `ferry matrix` knows beforehand: the cases that are
// known to fail through no fault of ferry's.
package matrix

import _ "embed"

// Exclude is the text of exclude.yaml, for matrix.ParseExclusions of
// cmd/ferry/internal/matrix/engine.
//
//go:embed exclude.yaml
var Exclude []byte
