package main

import (
	"testing"

	"github.com/ferrympi/ferry/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, map[string]func(){"pi": main}) }

func TestScripts(t *testing.T) { clitest.Run(t) }
