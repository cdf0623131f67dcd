package main

import (
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
)

func TestMain(m *testing.M) { ferrytest.Main(m, map[string]func(){"training": main}) }

func TestScripts(t *testing.T) { ferrytest.Run(t) }
