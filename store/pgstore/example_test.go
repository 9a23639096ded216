package pgstore_test //nolint:testableexamples // the example needs a database: TestEffect runs its tool against one

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// order is a tool that keeps its data in the ledger's database: it takes an item
// out of the stock and books an order. Both are committed with the record that it
// was done, so neither a crash nor a lost connection can leave one without the
// other.
func order(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error) {
	var args struct{ Item string }
	if err := json.Unmarshal(d.Record.Args, &args); err != nil {
		return idem.Outcome{}, err
	}
	taken, err := tx.Exec(ctx, `UPDATE shop.stock SET left_over = left_over - 1 WHERE item = $1 AND left_over > 0`, args.Item)
	if err != nil {
		return idem.Outcome{}, err
	}
	if taken.RowsAffected() == 0 {
		return idem.Outcome{}, fmt.Errorf("%s is sold out", args.Item)
	}
	var id int64
	if err := tx.QueryRow(ctx, `INSERT INTO shop.orders (item) VALUES ($1) RETURNING id`, args.Item).Scan(&id); err != nil {
		return idem.Outcome{}, err
	}
	return idem.Outcome{Result: fmt.Appendf(nil, `{"order":%d}`, id), Kind: idem.ResultValue, ExternalID: fmt.Sprint(id)}, nil
}

// The tool's changes and the record of its outcome commit together.
func ExampleStore_Effect() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, pgstore.Config{URL: "postgres://app@db.example/shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	guard, err := idem.New(idem.Config{Store: store, Policy: rules{}, Processes: nobody{}, Owner: idem.Owner{Machine: "host-1", PID: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := idem.Ask{Tenant: "default", Tool: "shop/order", Args: []byte(`{"item":"tea"}`), Task: "groceries", Step: "3"}
	for range 2 { // the second time it is replayed
		answer := guard.Do(ctx, ask, store.Effect(order))
		fmt.Println(string(answer.Result), answer.Err)
	}
}
