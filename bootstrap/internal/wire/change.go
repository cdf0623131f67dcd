package wire

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// ChangeOp is the operation inside a Change message.
type ChangeOp uint8

// The operations, with the types of the arguments and the answer.
const (
	Operate     ChangeOp = iota + 1 // OperateBody -> NamesBody
	Delete                          // NameBody -> Empty
	Query                           // LookupBody -> QueriedBody
	Integrate                       // IntegrateBody -> IntegratedBody
	Finish                          // NameBody -> Empty
	SetData                         // DataBody -> Empty
	GetData                         // KeyBody -> ValueBody; waits
	ListSets                        // Empty -> NamesBody
	DescribeSet                     // NameBody -> PsetBody
)

// FindEntry is an operation among members (bootstrap/mesh), answered by rank 0.
const FindEntry ChangeOp = DescribeSet + 1 // RankBody -> ValueBody

// MaxOperands is the largest number of operands of one operation on sets.
const MaxOperands = 256

// MaxSizes is the largest number of sizes of one split, that of the sets of a job.
const MaxSizes = 1<<16 - 1

// Bodies of the operations of bootstrap.Changer.
type (
	// ChangeBody carries one operation on process sets.
	ChangeBody struct {
		_    struct{} `cbor:",toarray"`
		Op   ChangeOp
		Args cbor.RawMessage
	}
	// OperateBody is a bootstrap.PsetOp with its operands and bootstrap.PsetArgs.
	OperateBody struct {
		_        struct{} `cbor:",toarray"`
		Op       uint8
		Operands []string
		Name     string
		Sizes    []int64
		Add, Sub int64
		Partial  bool
	}
	// QueriedBody is a bootstrap.Change, if Found.
	QueriedBody struct {
		_        struct{} `cbor:",toarray"`
		Found    bool
		Type     uint8
		Delta    string
		Main     string
		Included bool
	}
	// IntegrateBody enters the integration of the change that Delta names.
	IntegrateBody struct {
		_       struct{} `cbor:",toarray"`
		Delta   string
		Provide string
	}
	// IntegratedBody is a bootstrap.Integration.
	IntegratedBody struct {
		_         struct{} `cbor:",toarray"`
		Pset      string
		Terminate bool
	}
	// DataBody is a value of a set.
	DataBody struct {
		_     struct{} `cbor:",toarray"`
		Pset  string
		Key   string
		Value []byte
	}
	// RankBody names a process.
	RankBody struct {
		_    struct{} `cbor:",toarray"`
		Rank uint32
	}
	// KeyBody asks for a value of a set.
	KeyBody struct {
		_    struct{} `cbor:",toarray"`
		Pset string
		Key  string
	}
)

func (b OperateBody) check() error {
	if len(b.Operands) > MaxOperands {
		return fmt.Errorf("%d operands are over the limit of %d: %w", len(b.Operands), MaxOperands, framework.ErrUnsupported)
	}
	if len(b.Sizes) > MaxSizes {
		return fmt.Errorf("%d sizes are over the limit of %d: %w", len(b.Sizes), MaxSizes, framework.ErrUnsupported)
	}
	return checkNames(append([]string{b.Name}, b.Operands...)...)
}

func (b IntegrateBody) check() error { return checkNames(b.Delta, b.Provide) }
func (b KeyBody) check() error       { return checkNames(b.Pset, b.Key) }

func (b DataBody) check() error {
	if err := checkNames(b.Pset); err != nil {
		return err
	}
	return CheckSizes(b.Key, b.Value, bootstrap.MaxValue)
}

func checkNames(names ...string) error {
	for _, name := range names {
		if err := CheckSizes(name, nil, 0); err != nil {
			return err
		}
	}
	return nil
}

// EncodeChange returns the body of a Change message, or an error if args are over their
// limits.
func EncodeChange(op ChangeOp, args any) (ChangeBody, error) {
	if err := check(args); err != nil {
		return ChangeBody{}, err
	}
	return ChangeBody{Op: op, Args: EncodeBody(args)}, nil
}
