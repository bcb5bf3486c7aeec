// Put, delete and work through jobs over HTTP. Needs Java 17 or later, and no library: bodies are
// sent and received as they are, so that any JSON library can write and read them.
//
//   java Jobs.java put TOPIC DELAY BODY ID
//   java Jobs.java delete ID
//   java Jobs.java work TOPIC [COUNT]

import java.io.IOException;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import static java.nio.charset.StandardCharsets.UTF_8;

public class Jobs {
    static final Map<String, String> ENV = System.getenv();
    static final String GATEWAY = ENV.getOrDefault("RABBITDELAY_GATEWAY", "http://localhost:8437");
    static final String TOKEN = ENV.getOrDefault("RABBITDELAY_TOKEN", "");
    static final String WAIT_SECONDS = ENV.getOrDefault("RABBITDELAY_WAIT", "20");
    static final Duration TIMEOUT = // longer than the long poll
            Duration.ofSeconds((long) Double.parseDouble(WAIT_SECONDS) + 10);
    static final Duration GIVE_UP = Duration.ofSeconds(60);
    // 202: whether the job was put is not known.
    static final Set<Integer> REPEATED = Set.of(202, 429, 502, 503, 504);
    static final HttpClient CLIENT =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    // Send a request, and repeat it while the gateway or its broker is away.
    static HttpResponse<String> call(String method, String path, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(GATEWAY + path))
                .method(method, BodyPublishers.ofString(body))
                .header("Content-Type", "application/json")
                .header("Accept", "application/octet-stream, */*")
                .timeout(TIMEOUT);
        if (!TOKEN.isEmpty()) request.header("Authorization", "Bearer " + TOKEN);
        Instant deadline = Instant.now().plus(GIVE_UP);
        while (true) {
            String problem;
            long pause = 1;
            try {
                var response = CLIENT.send(request.build(), BodyHandlers.ofString());
                if (!REPEATED.contains(response.statusCode())) return response;
                problem = "" + response.statusCode();
                pause = response.headers().firstValueAsLong("Retry-After").orElse(1);
            } catch (IOException error) {
                problem = error.toString();
            }
            problem = method + " " + path + ": " + problem;
            if (Instant.now().plusSeconds(pause).isAfter(deadline)) throw new IOException(problem);
            System.err.println(problem + "; repeating in " + pause + " s");
            Thread.sleep(Duration.ofSeconds(pause).toMillis());
        }
    }

    // End unless a response means success. Its body is a problem document, with the reason.
    static void requireSuccess(HttpResponse<String> response) throws IOException {
        if (response.statusCode() >= 300) throw new IOException(response.body());
    }

    static String pathOf(String id) {
        return "/v1/jobs/" + URLEncoder.encode(id, UTF_8).replace("+", "%20");
    }

    // Put a job. A repeated request replaces the job that the first one put, so it is never put
    // twice. The body is JSON; topic and delay have no characters that JSON would escape.
    static void put(String topic, String delay, String body, String id) throws Exception {
        String job = "{\"topic\":\"%s\",\"delay\":\"%s\",\"body\":%s}";
        requireSuccess(call("PUT", pathOf(id), job.formatted(topic, delay, body)));
    }

    static void delete(String id) throws Exception {
        requireSuccess(call("DELETE", pathOf(id), ""));
    }

    // Handle `count` jobs of a topic, one after the other.
    static void work(String topic, long count) throws Exception {
        String wanted = "{\"topics\":\"%s\",\"wait\":%s}".formatted(topic, WAIT_SECONDS);
        while (count > 0) {
            var response = call("POST", "/v1/pop", wanted);
            if (response.statusCode() == 204) {
                System.err.println("no job came");
                continue;
            }
            requireSuccess(response);
            settle(response);
            count--;
        }
    }

    // Handle a job, then finish it, or release it for another attempt if the handler fails.
    static void settle(HttpResponse<String> popped) throws Exception {
        String id = fact(popped, "Id");
        String verb = "finish";
        try {
            handle(id, fact(popped, "Attempt"), popped.body());
        } catch (IllegalArgumentException error) {
            System.err.println("job " + id + " failed: " + error.getMessage());
            verb = "release";
        }
        var response = call("POST", "/v1/" + verb, "{\"lease\":\"" + fact(popped, "Lease") + "\"}");
        if (response.statusCode() == 409) { // its ttr is over: another consumer has it, or will
            System.err.println("job " + id + ": lease lost");
            return;
        }
        requireSuccess(response);
    }

    // Return a fact about a popped job, which is in a header of the response, percent-encoded.
    static String fact(HttpResponse<String> popped, String name) {
        String value = popped.headers().firstValue("Rabbitdelay-" + name).orElseThrow();
        return URLDecoder.decode(value.replace("+", "%2B"), UTF_8);
    }

    // A job may come twice. What happens here must have the same effect then: the id tells.
    static void handle(String id, String attempt, String body) {
        Matcher order = Pattern.compile("\"order\":\\s*(\\d+)").matcher(body);
        if (!order.find()) throw new IllegalArgumentException("the body has no order");
        System.out.println(id + ": close order " + order.group(1) + " (attempt " + attempt + ")");
    }

    public static void main(String[] args) throws Exception {
        switch (args.length == 0 ? "" : args[0]) {
            case "put" -> put(args[1], args[2], args[3], args[4]);
            case "delete" -> delete(args[1]);
            case "work" -> work(args[1], args.length < 3 ? Long.MAX_VALUE : Long.valueOf(args[2]));
            default -> throw new IllegalArgumentException("usage: Jobs.java put|delete|work …");
        }
    }
}
