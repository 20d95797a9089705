// What a bucket's level must be by the header fields of its answers.
//
// They count whole tokens and whole seconds, so an answer gives a range; what was
// known before narrows it, and time moves it. All instants and durations are in
// seconds, instants by one monotonic clock.

// readFields returns the figures of a header: capacity in tokens, window (of an empty
// bucket, until it is full) in seconds, remaining in whole tokens, reset (until full)
// and retryAfter, which only a refusal has, in whole seconds rounded up.
export function readFields(headers) {
  const policy = headers.get("RateLimit-Policy") ?? "";
  const fields = {
    capacity: Number(/;q=(\d+)/.exec(policy)?.[1]),
    window: Number(/;w=(\d+)/.exec(policy)?.[1]),
    remaining: Number(headers.get("X-RateLimit-Remaining") ?? NaN),
    reset: Number(headers.get("X-RateLimit-Reset") ?? NaN),
  };
  if (Object.values(fields).some(Number.isNaN)) {
    throw new Error("the answer has no limit");
  }
  if (headers.has("Retry-After")) {
    fields.retryAfter = Number(headers.get("Retry-After"));
  }
  return fields;
}

// Level is what is known of a level at one instant and, if nobody spends, after it:
// it is from low to high. It does not change; learn returns the next one.
export class Level {
  // An answer about a request of a cost in tokens, which the gateway decided about at
  // some instant from sent to received.
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

  // learn returns the level after another answer. What was known is given up where the
  // answer contradicts it: somebody else at this address has spent, or the limit is new.
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

  // range returns low and high at an instant, not before that of the answer.
  range(now) {
    const grown = (level, rate) => Math.min(this.capacity, level + gain(rate, now - this.at));
    return [grown(this.low, this.slow), grown(this.high, this.fast)];
  }

  // reaches returns the instant from which on the level is certainly so many tokens.
  reaches(tokens) {
    return this.at + Math.max(0, tokens - this.low) / this.slow;
  }
}

function gain(rate, seconds) {
  return seconds > 0 ? rate * seconds : 0; // no Infinity * 0
}

// Due is the instant from which on a refused request is certainly admitted if nobody
// spends before.
export class Due {
  constructor(retryAfter, sent, received) {
    this.from = received;
    this.at = received + retryAfter;
    this.notBefore = sent + retryAfter - 1; // as Retry-After is rounded up
  }

  // refine returns the instant after a later refusal of the same request: never a later
  // instant, unless somebody else has spent.
  refine(next) {
    if (this.at >= next.notBefore) {
      next.from = this.from;
      next.at = Math.min(next.at, this.at);
    }
    return next;
  }

  // spent puts it off for a request of a price, after another one took its cost from
  // a level, which is known anew.
  spent(cost, price, level) {
    this.at = Math.min(Math.max(this.at, level.at) + cost / level.slow, level.reaches(price));
  }

  // agree takes over what a level, known anew, says: that it is certainly enough before,
  // or that it can't be enough by then, as somebody else has spent.
  agree(price, level) {
    const enough = level.reaches(price);
    if (enough < this.at || level.range(this.at)[1] < price) {
      this.at = enough;
    }
  }
}
