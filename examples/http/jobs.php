<?php
// Put, delete and work through jobs over HTTP. Needs PHP 8.1 or later with curl.
//
//   php jobs.php put TOPIC DELAY BODY ID
//   php jobs.php delete ID
//   php jobs.php work TOPIC [COUNT]

declare(strict_types=1);

const REPEATED = [202, 429, 502, 503, 504]; // 202: whether the job was put is not known
const GIVE_UP_SECONDS = 60;

// A connection to the gateway, which is kept open between requests.
final class Gateway
{
    private CurlHandle $curl;

    public function __construct(private string $url, private string $token)
    {
        $this->curl = curl_init();
    }

    // Send a request; repeat it while the gateway or its broker is away. Return status and answer.
    public function call(string $method, string $path, ?array $body = null, float $wait = 0): array
    {
        $deadline = microtime(true) + GIVE_UP_SECONDS;
        while (true) {
            [$status, $text, $pause] = $this->send($method, $path, $body, $wait);
            if ($status >= 100 && !in_array($status, REPEATED)) {
                return [$status, json_decode($text, true)];
            }
            $problem = "$method $path: " . ($status ?: curl_error($this->curl));
            if (microtime(true) + $pause > $deadline) {
                throw new RuntimeException($problem);
            }
            fwrite(STDERR, "$problem; repeating in $pause s\n");
            usleep((int) ($pause * 1_000_000));
        }
    }

    // Send a request once. The status is 0 if there was no answer.
    private function send(string $method, string $path, ?array $body, float $wait): array
    {
        $pause = 1.0;
        curl_reset($this->curl);
        curl_setopt_array($this->curl, [
            CURLOPT_URL => $this->url . $path,
            CURLOPT_CUSTOMREQUEST => $method,
            CURLOPT_HTTPHEADER => [
                'Content-Type: application/json',
                ...($this->token === '' ? [] : ["Authorization: Bearer $this->token"]),
            ],
            CURLOPT_POSTFIELDS => $body === null ? '' : json_encode($body, JSON_THROW_ON_ERROR),
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_TIMEOUT_MS => (int) (1000 * ($wait + 10)), // longer than the long poll
            CURLOPT_HEADERFUNCTION => function ($curl, string $line) use (&$pause): int {
                if (preg_match('/^retry-after: *(\d+)/i', $line, $found)) {
                    $pause = (float) $found[1];
                }
                return strlen($line);
            },
        ]);
        $text = curl_exec($this->curl);
        $status = $text === false ? 0 : curl_getinfo($this->curl, CURLINFO_RESPONSE_CODE);
        return [$status, (string) $text, $pause];
    }
}

// Return the answer to a request that must succeed.
function succeeded(array $response): mixed
{
    [$status, $answer] = $response;
    if ($status >= 300) {
        throw new RuntimeException("$status: " . ($answer['detail'] ?? 'no details'));
    }
    return $answer;
}

// Put a job. A repeated request replaces the job that the first one put, so it is never put twice.
function put(Gateway $gateway, string $topic, string $delay, mixed $body, string $id): void
{
    $job = ['topic' => $topic, 'delay' => $delay, 'body' => $body];
    succeeded($gateway->call('PUT', '/v1/jobs/' . rawurlencode($id), $job));
}

function delete(Gateway $gateway, string $id): void
{
    succeeded($gateway->call('DELETE', '/v1/jobs/' . rawurlencode($id)));
}

// Handle `$count` jobs of a topic, one after the other.
function work(Gateway $gateway, string $topic, float $count, float $wait): void
{
    while ($count > 0) {
        $response = $gateway->call('POST', '/v1/pop', ['topics' => $topic, 'wait' => $wait], $wait);
        if ($response[0] === 204) {
            fwrite(STDERR, "no job came\n");
            continue;
        }
        foreach (succeeded($response)['jobs'] as $job) {
            settle($gateway, $job);
            $count--;
        }
    }
}

// Handle a job, then finish it, or release it for another attempt if the handler fails.
function settle(Gateway $gateway, array $job): void
{
    $verb = 'finish';
    try {
        handle($job);
    } catch (Throwable $error) {
        fwrite(STDERR, "job {$job['id']} failed: {$error->getMessage()}\n");
        $verb = 'release';
    }
    $response = $gateway->call('POST', "/v1/$verb", ['lease' => $job['lease']]);
    if ($response[0] === 409) { // its ttr is over: it was handed to another consumer, or will be
        fwrite(STDERR, "job {$job['id']}: lease lost\n");
        return;
    }
    succeeded($response);
}

// A job may come twice. What happens here must have the same effect then: the id tells.
function handle(array $job): void
{
    if (!isset($job['body']['order'])) {
        throw new UnexpectedValueException('the body has no order');
    }
    echo "{$job['id']}: close order {$job['body']['order']} (attempt {$job['attempt']})\n";
}

$gateway = new Gateway(
    getenv('RABBITDELAY_GATEWAY') ?: 'http://localhost:8437',
    getenv('RABBITDELAY_TOKEN') ?: '',
);
$wait = (float) (getenv('RABBITDELAY_WAIT') ?: 20);
match ($argv[1] ?? '') {
    'put' => put($gateway, $argv[2], $argv[3],
        json_decode($argv[4], flags: JSON_THROW_ON_ERROR), $argv[5]),
    'delete' => delete($gateway, $argv[2]),
    'work' => work($gateway, $argv[2], (float) ($argv[3] ?? INF), $wait),
    default => exit("usage: php jobs.php put|delete|work …\n"),
};
