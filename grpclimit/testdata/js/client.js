// Calls a method that admits one call twice, and prints the answer to the second call as
// JSON. Then it calls a third time with grpc-js's own retry policy. Usage: node client.js
// ADDRESS METHOD
import grpc from '@grpc/grpc-js'

const [address, method] = process.argv.slice(2)
const retryPolicy = {
  maxAttempts: 2, initialBackoff: '0.001s', maxBackoff: '0.001s', backoffMultiplier: 1,
  retryableStatusCodes: ['RESOURCE_EXHAUSTED'],
}
const serviceConfig = JSON.stringify({ methodConfig: [{ name: [{}], retryPolicy }] })

// call resolves to { error, trailer } when the status has arrived.
function call (options) {
  const client = new grpc.Client(address, grpc.credentials.createInsecure(), options)
  const raw = (bytes) => bytes
  return new Promise((resolve) => {
    let error = null
    client.makeUnaryRequest(method, raw, raw, Buffer.alloc(0), (e) => { error = e })
      .on('status', (status) => {
        client.close()
        setImmediate(() => resolve({ error, trailer: status.metadata }))
      })
  })
}

// fields yields [number, value] of each field of a protobuf message: integers and bytes.
function * fields (bytes) {
  let at = 0
  const varint = () => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return Number(value)
    }
  }
  while (at < bytes.length) {
    const tag = varint()
    if ((tag & 7) === 0) yield [tag >> 3, varint()]
    else { // all other fields begin with a length
      const length = varint()
      yield [tag >> 3, bytes.subarray(at, at += length)]
    }
  }
}

const parse = (bytes) => Object.fromEntries(fields(bytes))

// retryInfo returns the delay of RetryInfo in a google.rpc.Status, as [seconds, nanoseconds].
function retryInfo (status) {
  for (const [number, detail] of fields(status)) {
    const { 1: type, 2: value } = number === 3 ? parse(detail) : {}
    if (type?.toString().endsWith('google.rpc.RetryInfo')) {
      const { 1: seconds = 0, 2: nanos = 0 } = parse(parse(value)[1])
      return [seconds, nanos]
    }
  }
}

const first = await call({ 'grpc.enable_retries': 0 })
const { error, trailer } = await call({ 'grpc.enable_retries': 0 })
const third = await call({ 'grpc.service_config': serviceConfig })
console.log(JSON.stringify({
  first: first.error?.code ?? 0,
  code: error?.code,
  retryInfo: retryInfo(trailer.get('grpc-status-details-bin')[0]),
  pushback: trailer.get('grpc-retry-pushback-ms'),
  rateLimit: trailer.get('ratelimit'),
  policy: trailer.get('ratelimit-policy'),
  third: third.error?.code ?? 0,
}))
