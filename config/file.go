package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/trustedfile"
)

// maxFile limits a configuration file, in bytes. All parameters with their documentation need a tenth of it.
const maxFile = 1 << 20

// location is the path of a configuration file, with the treatment of errors.
type location struct {
	path string
	need need
}

// need is the treatment of a file that is missing or cannot be read.
type need int

const (
	mayBeMissing    need = iota // The site file, and the user file that a program names.
	mustExist                   // The file that FERRY_CONFIG names.
	mayBeUnreadable             // The user file below XDG_CONFIG_HOME or HOME.
)

// skips reports whether a file with this error counts as empty.
func (l location) skips(err error) bool {
	return errors.Is(err, fs.ErrNotExist) && l.need != mustExist ||
		errors.Is(err, errUnreadable) && l.need == mayBeUnreadable
}

// document is the contents of a configuration file. It implements koanf.Provider.
type document struct {
	path string
	text []byte
}

func (d document) ReadBytes() ([]byte, error)    { return d.text, nil }
func (d document) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

// layer returns the layer of the file. It is empty for the empty path, os.DevNull, and files that skips accepts. It reports an unreadable one of those
// to skipped, which may be nil.
func (l location) layer(skipped func(file string, reason error)) (layer, error) {
	source := "file " + l.path
	doc, err := l.read()
	switch {
	case l.skips(err):
		if errors.Is(err, errUnreadable) && skipped != nil {
			skipped(l.path, err)
		}
		return texts{}.layer(source), nil
	case err != nil && l.need == mustExist:
		return layer{}, fmt.Errorf("%w: environment %s: %s %w", framework.ErrConfig, FileVariable, source, err)
	case err != nil:
		return layer{}, fmt.Errorf("%w: %s %w", framework.ErrConfig, source, err)
	}
	var plugins any
	all, err := newLayer(source, doc, parser{koanfyaml.Parser(), &plugins})
	all.isStanding, all.pluginEntries, all.sourceFile = true, plugins, doc
	return all, err
}

// errUnreadable is the error of read for a file that the system refuses.
var errUnreadable = errors.New("cannot be read")

// read returns the contents of a regular file of at most maxFile bytes. An error is a predicate for the path.
func (l location) read() (document, error) {
	if l.path == os.DevNull {
		return document{}, nil
	}
	// O_NONBLOCK, because the open of a named pipe without writers would block.
	f, err := os.OpenFile(l.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return document{}, fmt.Errorf("is missing: %w", fs.ErrNotExist)
	} else if err != nil {
		return document{}, unreadable(err)
	}
	text, err := readAll(f)
	return document{l.path, text}, err
}

// readAll reads and closes a file.
func readAll(f *os.File) ([]byte, error) {
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, unreadable(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("has %d bytes, where at most %d are expected", info.Size(), maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, unreadable(err)
	}
	return text, nil
}

// checkTrust returns ErrConfig with key if another user may have written the text. It resolves the path again, with checks of the folders, and
// compares the text.
func (d document) checkTrust(key string) error {
	f, err := trustedfile.Open(d.path)
	if err == nil {
		var text []byte
		if text, err = readAll(f); err == nil && !bytes.Equal(text, d.text) {
			err = errors.New("it was exchanged while it was read")
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: file %s sets %s, which only a file of root or of this user may: %w; %s",
		framework.ErrConfig, d.path, key, err, trustedfile.Remedy(err, "move the file to a folder of this user"))
}

// unreadable returns errUnreadable with the reason, without the path.
func unreadable(err error) error {
	return fmt.Errorf("%w: %w", errUnreadable, cmp.Or(errors.Unwrap(err), err))
}

// checkTrust returns ErrConfig for a layer that decides which code runs or which file is
// written, and that another user may have written.
func (l layer) checkTrust(base *framework.Values) error {
	if l.pluginEntries != nil {
		return l.sourceFile.checkTrust(pluginsKey)
	}
	for _, name := range l.Keys() {
		if spec, _ := base.Spec(name); spec.Trusted {
			return l.sourceFile.checkTrust(name)
		}
	}
	return nil
}
