#include <curl/curl.h>
#include <openssl/crypto.h>
#include <stdio.h>

#include "cli/cli.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

static int run(const args *a, status *st)
{
    (void)st;
    const char *curl = curl_version_info(CURLVERSION_NOW)->version, *openssl = OpenSSL_version(OPENSSL_VERSION_STRING);
    if (args_flag(a, "json"))
        printf("{\"version\": \"%s\", \"compiler\": \"%s\", \"libcurl\": \"%s\", \"openssl\": \"%s\"}\n",
               KVASIR_VERSION, COMPILER, curl, openssl);
    else printf("kvasir %s (%s, libcurl %s, OpenSSL %s)\n", KVASIR_VERSION, COMPILER, curl, openssl);
    return 0;
}

static const option_spec options[] = {
    {.name = "json", .kind = OPTION_FLAG, .help = "print one JSON object"},
    {.name = NULL},
};

const command cmd_version = {
    .name = "version",
    .positional = "",
    .summary = "Print the version of Kvasir and of what it is built on",
    .details = "Examples:\n\n  kvasir version\n  kvasir version --json\n",
    .options = options,
    .run = run,
};
