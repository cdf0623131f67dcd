package main

import (
	"testing"

	"github.com/ferrympi/ferry/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, map[string]func(){"hello": main}) }

func TestScripts(t *testing.T) { clitest.Run(t) }
