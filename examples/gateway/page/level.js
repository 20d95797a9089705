// Computes the level of a bucket from the header fields of its answers.
//
// The fields are in whole tokens and whole seconds, so an answer gives a range of levels.
// Earlier answers narrow the range, and it moves with time. All instants and durations
// are in seconds; instants are readings of one monotonic clock.

// readFields returns the numbers of the header fields. capacity and remaining are in
// whole tokens. The others are in whole seconds, rounded up: window until an empty bucket
// is full, reset until this bucket is full, and retryAfter, which only a refusal has.
export function readFields(headers) {
  const policy = headers.get("RateLimit-Policy") ?? "";
  const fields = {
    capacity: Number(/;q=(\d+)/.exec(policy)?.[1]),
    window: Number(/;w=(\d+)/.exec(policy)?.[1]),
    remaining: Number(headers.get("X-RateLimit-Remaining") ?? NaN),
    reset: Number(headers.get("X-RateLimit-Reset") ?? NaN),
  };
  if (Object.values(fields).some(Number.isNaN)) {
    throw new Error("the answer has no header fields about a limit");
  }
  if (headers.has("Retry-After")) {
    fields.retryAfter = Number(headers.get("Retry-After"));
  }
  return fields;
}

// Level is what the page knows about a level: at the instant at, it is between low and
// high. range returns the bounds for a later instant, if no tokens are taken until then.
// A Level does not change: learn returns a new one.
export class Level {
  // The fields are those of an answer to a request with a cost in tokens. The gateway
  // decided at some instant between sent and received.
  constructor(fields, cost, sent, received) {
    const { capacity, window, remaining, reset, retryAfter } = fields;
    this.capacity = capacity;
    // The window is rounded up: window - 1 < capacity / refill <= window.
    this.slow = capacity / window;
    this.fast = window > 1 ? capacity / (window - 1) : Infinity;
    this.at = received;
    this.low = Math.max(remaining, capacity - gain(this.fast, reset));
    this.high = Math.min(remaining + 1, capacity - gain(this.slow, reset - 1));
    if (retryAfter !== undefined) {
      this.low = Math.max(this.low, cost - gain(this.fast, retryAfter));
      this.high = Math.min(this.high, cost - gain(this.slow, retryAfter - 1));
    }
    this.high = Math.min(capacity, this.high + gain(this.fast, received - sent));
  }

  // learn returns the level after another answer. If the answer contradicts the old
  // level, only the answer counts: then another client at this address has taken tokens,
  // or the limit has changed.
  learn(fields, cost, sent, received) {
    const next = new Level(fields, cost, sent, received);
    if (next.capacity !== this.capacity || next.slow !== this.slow) {
      return next;
    }
    const spent = fields.retryAfter === undefined ? cost : 0;
    const low = Math.max(next.low, this.range(received)[0] - spent);
    const high = Math.min(next.high, this.range(sent)[1] - spent + gain(this.fast, received - sent));
    if (low <= high) {
      next.low = low;
      next.high = high;
    }
    return next;
  }

  // range returns low and high at an instant that is not before this.at.
  range(now) {
    const grown = (level, rate) => Math.min(this.capacity, level + gain(rate, now - this.at));
    return [grown(this.low, this.slow), grown(this.high, this.fast)];
  }

  // reaches returns the instant from which the level is certainly at least a number of
  // tokens.
  reaches(tokens) {
    return this.at + Math.max(0, tokens - this.low) / this.slow;
  }
}

function gain(rate, seconds) {
  return seconds > 0 ? rate * seconds : 0; // no Infinity * 0
}

// Due is the instant from which a refused request is certainly admitted, if no tokens are
// taken before.
export class Due {
  constructor(retryAfter, sent, received) {
    this.from = received;
    this.at = received + retryAfter;
    this.notBefore = sent + retryAfter - 1; // as Retry-After is rounded up
  }

  // refine returns the Due after a later refusal of the same request. It is not later
  // than this one, unless another client has taken tokens.
  refine(next) {
    if (this.at >= next.notBefore) {
      next.from = this.from;
      next.at = Math.min(next.at, this.at);
    }
    return next;
  }

  // spent makes the instant later, after another request has taken a cost. price is that of
  // the refused request, and level is the level known after the cost was taken.
  spent(cost, price, level) {
    this.at = Math.min(Math.max(this.at, level.at) + cost / level.slow, level.reaches(price));
  }

  // agree moves the instant to where a new level reaches the price, in two cases: the
  // level certainly reaches it earlier, or it can't reach it in time, since another
  // client has taken tokens.
  agree(price, level) {
    const enough = level.reaches(price);
    if (enough < this.at || level.range(this.at)[1] < price) {
      this.at = enough;
    }
  }
}
