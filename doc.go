// Package idem makes the side effects of LLM agents happen once.
//
// Agents pay, mail and open tickets through tools; they time out, reconnect,
// crash, resume and ask again. A [Guard] stands between ask and effect: however
// often an operation is asked for, no effect passes while an earlier one may
// still happen or may have happened, and every later ask gets the first
// outcome. What is not known is called unknown, and is settled by asking the
// outside system, never by trying again and never by the model.
//
// This is effectively once, given what the outside system lets us ask of it. It
// is never exactly once:
//
//	The outside system offers            Guarantee
//	-----------------------------------  ------------------------------------------
//	the same database as the ledger      effect and record commit together; no
//	(Effect.Atomic)                      outcome is unknown
//	it enforces our key                  sending again is safe; at most one effect
//	                                     (Rules.Resend, for effect: idempotent)
//	a query by our key or business key   reconcile, then settle or retry; what is
//	                                     left: an attempt that its paused or cut-off
//	                                     owner still sends after settle
//	nothing                              at most once; an unknown outcome waits for
//	                                     a person
//
// # Words
//
// An operation is one logical action, an attempt one dispatch of it, an effect
// the change outside, an ask one request that reaches the guard. The ledger is
// the durable table behind [Store].
//
// # Identity
//
// An operation is named by its [Scope] (tenant, server/tool, operation) and a
// key K, derived in this order: business key, host key, task and step, a
// client's generic key, task and occurrence, or none. An ask that names neither
// key nor step is looked up: an alias (the client's call id), else an unsettled
// twin (same task, tool and arguments), else the lowest outcome that this run
// of the agent has not in hand, else it is the next occurrence. All of it is
// decided by one pure function over one snapshot, and the version of the slot
// row is among the claim's needs, so that of two racers for occurrence n+1
// exactly one claims.
//
// The request hash ([HashRequest]) is made of the raw bytes. The same key with
// other arguments is refused before dispatch.
//
// # States
//
// [Next] holds every transition; nothing else changes a record.
//
//	                  Claim
//	   (none) ───────────────────────────▶ STARTED ──────────┐
//	      ▲                                 │ │ │            │ Report interim
//	      │          Report success         │ │ │            ▼
//	      │   ┌─────────────────────────────┘ │ │         PLANNED ──Claim──▶ STARTED
//	      │   ▼                               │ │
//	  COMMITTED ◀──found── UNKNOWN ◀──────────┘ └─▶ FAILED_RETRYABLE ──Claim──▶ STARTED
//	      │   (RECONCILING)  │ │  Report ambiguous,    not sent, throttled; or
//	      │                  │ │  TimedOut, OwnerLost  absent, by query or fence
//	      │     give up, no  │ │ absent, proven
//	      │     reconciler,  │ ├─▶ FAILED_RETRYABLE
//	      │     duplicate    │ └─▶ FAILED_FINAL  attempts used up, rejected, or the
//	      │                  ▼                   tool's own word (absence claimed)
//	      │            NEEDS_REVIEW ──Resolve──▶ COMMITTED, FAILED_FINAL, COMPENSATED
//	      ▼                  └──────Grant──────▶ the next ask claims once more
//	COMPENSATING ─▶ COMPENSATED
//
// An atomic attempt ([Effect.Atomic]) is never UNKNOWN. Its effect is part of the
// commit that makes the record COMMITTED, which needs the record's version. So
// whoever moves the record on, by TimedOut, OwnerLost or in any other way, fences
// the attempt and by that proves that it was not applied: it leads to
// FAILED_RETRYABLE, or to FAILED_FINAL when the attempts are used up.
//
// RECONCILING is UNKNOWN while a reconciler holds its lease; it is shown, never
// stored. A late [Report] is evidence: success leads from UNKNOWN, NEEDS_REVIEW
// and FAILED_* to COMMITTED; where a success of another attempt is known
// already it is a duplicate and a person is called; after a person's decision
// or a compensation, likewise. While any attempt may have applied, a definite
// failure of another leads to UNKNOWN.
//
// # Proof of absence
//
// "Not found" permits a retry only if the attempt was observed as not sent, or
// the outside enforces our key, or the query began settle after the attempt's
// proven end: its complete answer, the exit of the upstream's whole process
// group, or the last moment bytes could have left with the owner finished or
// known dead. It is never counted from the dispatch. An atomic attempt needs no
// query: the fence is its proof. The attempt is closed in the record in the commit
// that permits the retry.
//
// # Commits and crashes
//
// A direct call costs two durable commits. A crash can fall into any gap
// between two of them, and the next ask, or the recoverer before it, does:
//
//	Crash                        On disk               Outside    Next
//	---------------------------  --------------------  ---------  ------------------------------
//	before the claim's commit    nothing               nothing    claims and dispatches
//	in the claim's commit        nothing, or STARTED   nothing    as one of its neighbours
//	claimed, not dispatched      STARTED               nothing    owner dead: UNKNOWN; its group
//	                                                              is ended; query after settle:
//	                                                              absent, one retry
//	dispatched, no answer        STARTED               maybe      the same; found: COMMITTED
//	answered, not recorded       STARTED               yes or no  the same; found: COMMITTED, with
//	                                                              the query's result
//	in the outcome's commit      STARTED or outcome    yes or no  as one of its neighbours
//	recorded, not answered       COMMITTED             yes        replays
//	answered, mark not durable   COMMITTED             yes        replays once more: the safe side
//	timeout recorded, attempt    UNKNOWN, attempt      maybe      queries; absence is not believed
//	open                         open                             before the attempt's end is known
//	query leased, not asked      UNKNOWN, query lease  as before  owner dead: asks again at once
//	query answered, not          UNKNOWN, query lease  as before  asks again: queries have no effect
//	recorded
//	query recorded               COMMITTED, FAILED_*   as before  replays, retries or stops
//	retry permitted, not         FAILED_RETRYABLE      nothing    claims when the time has come
//	claimed
//	decision recorded            as decided            as before  replays, stops, or claims once
//
// Without a reconciler every row that says UNKNOWN reads NEEDS_REVIEW.
//
// Of an atomic effect, which its own transaction carries:
//
//	Crash                        On disk               Outside    Next
//	---------------------------  --------------------  ---------  ------------------------------
//	claimed, not begun           STARTED               nothing    owner dead, or its lease over:
//	                                                              fenced, one retry
//	written, not committed       STARTED               nothing    the same; the database rolls
//	                                                              back, or the fence does
//	in the commit                STARTED or COMMITTED  the same   as one of its neighbours
//	committed, not answered      COMMITTED             yes        replays
//	timeout recorded,            FAILED_RETRYABLE,     nothing    claims when the time has come
//	transaction open             fenced
//	failed, not recorded         STARTED               nothing    as claimed, not begun
//
// # What holds always
//
//   - No claim, no dispatch: if the claim cannot be recorded durably, the tool is
//     not called.
//   - Expiry never authorises a dispatch. A lease that ran out, a pruned row, a
//     timeout or a clock jump lead to reconciliation or a refusal.
//   - Leases are judged by the store's clock inside the commit. An owner that is
//     known dead has lost its lease at once; one that may live only when it ends,
//     and then the outcome is unknown, not free.
//   - Outcomes are recorded on a context that the asker's leaving cannot reach.
//   - An outcome that cannot be recorded stays in memory and is tried until exit;
//     the asker gets the tool's own result, marked [CodeNotRecorded].
//
// # What is not promised
//
// A tool that repeats its effect by itself, below one dispatch, is not seen
// here. A baseline compares what is there before and after: an equal effect that
// somebody else makes in between looks like ours; only that of an operation with
// the same request in the same task is told apart, and where it cannot be, a
// person is called. What a process leaves to
// others outside its group outlives the group's end, and settle has to cover it.
package idem
