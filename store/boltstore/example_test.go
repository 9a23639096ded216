package boltstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
)

// restock fills the shelf.
func restock(_ context.Context, tx *bbolt.Tx, _ idem.Dispatch) (idem.Outcome, error) {
	stock, err := tx.CreateBucketIfNotExists([]byte("stock"))
	if err != nil {
		return idem.Outcome{}, err
	}
	return idem.Outcome{Result: []byte(`"restocked"`), Kind: idem.ResultValue}, stock.Put([]byte("tea"), []byte{1})
}

// order takes an item out of the stock and books an order. Both are committed
// with the record that it was done.
func order(_ context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
	var args struct{ Item string }
	if err := json.Unmarshal(d.Record.Args, &args); err != nil {
		return idem.Outcome{}, err
	}
	orders, err := tx.CreateBucketIfNotExists([]byte("orders"))
	if err != nil {
		return idem.Outcome{}, err
	}
	id, err := orders.NextSequence()
	if err != nil {
		return idem.Outcome{}, err
	}
	if err := orders.Put(fmt.Appendf(nil, "order %d", id), []byte(args.Item)); err != nil {
		return idem.Outcome{}, err
	}
	stock := tx.Bucket([]byte("stock"))
	left := stock.Get([]byte(args.Item))
	if len(left) == 0 || left[0] == 0 {
		return idem.Outcome{}, fmt.Errorf("%s is sold out", args.Item) // the order is rolled back
	}
	return idem.Outcome{Result: fmt.Appendf(nil, `{"order":%d}`, id), Kind: idem.ResultValue}, stock.Put([]byte(args.Item), []byte{left[0] - 1})
}

// nobody has died.
type nobody struct{}

func (nobody) Dead(idem.Owner) bool                                  { return false }
func (nobody) EndGroup(context.Context, idem.Owner, idem.Group) bool { return true }

// The tool's changes and the record of its outcome commit together: an order that
// is asked for again is replayed, and one that fails leaves nothing behind.
func ExampleStore_Effect() {
	dir, err := os.MkdirTemp("", "shop-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := boltstore.Open(boltstore.Config{Path: filepath.Join(dir, "shop.db")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	rules, err := policy.New(policy.Config{Servers: []string{"shop"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := idem.New(idem.Config{Store: store, Policy: rules, Processes: nobody{}, Owner: idem.Owner{Machine: "host-1", PID: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(step, tool string, do boltstore.EffectFunc) {
		answer := guard.Do(context.Background(), idem.Ask{Tenant: "default", Tool: "shop/" + tool, Args: []byte(`{"item":"tea"}`),
			Task: "groceries", Step: step}, store.Effect(do))
		if answer.Err != nil {
			fmt.Println(step, answer.Err.Text)
			return
		}
		fmt.Println(step, string(answer.Result), answer.Replayed)
	}
	ask("1", "restock", restock)
	ask("2", "order", order)
	ask("2", "order", order)
	ask("3", "order", order)
	ask("4", "restock", restock)
	ask("5", "order", order)
	// Output:
	// 1 "restocked" false
	// 2 {"order":1} false
	// 2 {"order":1} true
	// 3 It was not applied, and it will not be attempted again. It said: tea is sold out
	// 4 "restocked" false
	// 5 {"order":2} false
}
