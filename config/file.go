package config

import (
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

// maxFile bounds a configuration file, in bytes. All parameters with their documentation need a
// tenth of it.
const maxFile = 1 << 20

// location is the path of a configuration file, and its treatment if it can't be read.
type location struct {
	path string
	need need
}

// need is the treatment of a file that is missing or can't be read.
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
	text     []byte
	distrust error // Reason that another user may have written the text; nil for none.
}

func (d document) ReadBytes() ([]byte, error)    { return d.text, nil }
func (d document) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

// layer returns the layer of the file, which is empty for the empty path, os.DevNull, and a
// file that skips leaves out. An unreadable one among those is reported to skipped, if that is
// not nil.
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
	all.standing, all.plugins, all.distrust = true, plugins, doc.distrust
	return all, err
}

// errUnreadable is the error of read for a file that the system refuses.
var errUnreadable = errors.New("can't be read")

// read returns the contents of a regular file of at most maxFile bytes. The file is opened once:
// the text and the verdict on its owner are those of one file. An error continues the sentence
// that the path begins.
func (l location) read() (doc document, err error) {
	if l.path == os.DevNull {
		return document{}, nil
	}
	f, distrust := trustedfile.Open(l.path)
	if distrust != nil {
		// O_NONBLOCK: an open of a named pipe without writers would block.
		if f, err = os.OpenFile(l.path, os.O_RDONLY|syscall.O_NONBLOCK, 0); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return document{}, fmt.Errorf("is missing: %w", fs.ErrNotExist)
		} else if err != nil {
			return document{}, unreadable(err)
		}
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return document{}, unreadable(err)
	case !info.Mode().IsRegular():
		return document{}, errors.New("is not a regular file")
	case info.Size() > maxFile:
		return document{}, fmt.Errorf("has %d bytes, where at most %d are expected", info.Size(), maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return document{}, unreadable(err)
	}
	return document{text, distrust}, nil
}

// unreadable returns errUnreadable with the reason, without the path.
func unreadable(err error) error {
	return fmt.Errorf("%w: %w", errUnreadable, cmp.Or(errors.Unwrap(err), err))
}

// checkTrust returns ErrConfig for a layer that decides which code runs or which file is
// written, and that another user may have written.
func (l layer) checkTrust(base *framework.Values) error {
	if l.distrust == nil {
		return nil
	}
	if l.plugins != nil {
		return distrusted(l.source, pluginsKey, l.distrust)
	}
	for _, name := range l.Keys() {
		if spec, _ := base.Spec(name); spec.Trusted {
			return distrusted(l.source, name, l.distrust)
		}
	}
	return nil
}

// distrusted is the error of a file that sets key although another user may have written it.
func distrusted(source, key string, reason error) error {
	return fmt.Errorf("%w: %s sets %s, which only a file of root or of this user may: %w; %s",
		framework.ErrConfig, source, key, reason, trustedfile.Remedy(reason, "move the file to a folder of this user"))
}
