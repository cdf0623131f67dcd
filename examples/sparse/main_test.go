package main

import (
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
)

func TestMain(m *testing.M) { ferrytest.Main(m, map[string]func(){"sparse": main}) }

func TestScripts(t *testing.T) { ferrytest.Run(t) }
