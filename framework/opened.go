package framework

import (
	"errors"
	"fmt"
	"reflect"
)

// CheckOpened returns ErrConfig if a component's Open returned neither a module nor an error. A nil pointer in an interface is no module.
func CheckOpened(kind Kind, name string, module any) error {
	switch v := reflect.ValueOf(module); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		if !v.IsNil() {
			return nil
		}
	case reflect.Invalid:
	default:
		return nil
	}
	return Breach(kind, name, "Open returned neither a module nor an error; it must return one of them")
}

// Breach returns the ErrConfig of a component that breaks a rule of its contract.
func Breach(kind Kind, name, rule string) error {
	return fmt.Errorf("%w: %s %s: the component breaks its contract: %s", ErrConfig, kind, name, rule)
}

// Checked returns the module of a component's Open. It returns ErrConfig if the module is nil, and if broken returns a rule that the module
// violates. It closes such a module.
func Checked[M interface{ Close() error }](kind Kind, name string, m M, broken func(M) string) (M, error) {
	var none M
	if err := CheckOpened(kind, name, m); err != nil {
		return none, err
	}
	if rule := broken(m); rule != "" {
		return none, errors.Join(Breach(kind, name, rule), m.Close())
	}
	return m, nil
}
