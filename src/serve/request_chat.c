/* A conversation, and what else its template sees. */
#include <stdio.h>
#include <string.h>

#include "serve/request.h"

static bool is_role(const json_t *v)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (json_string_length(v) == strlen(roles[i]) && strcmp(json_string_value(v), roles[i]) == 0) return true;
    return false;
}

/* The name of a member: messages.0.content.1.text */
static const char *member_name(char (*name)[PARAM_BYTES], const char *of, size_t index, const char *member)
{
    snprintf(*name, sizeof *name, "%.60s.%zu%s%.40s", of, index, *member ? "." : "", member);
    return *name;
}

/* [{"type": "text", "text": "..."}, ...]: texts are joined, so nothing but them reaches the template. */
static int check_parts(request *r, const char *of, const json_t *parts, api_error *e)
{
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        char name[PARAM_BYTES];
        const char *key;
        json_t *v;
        const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
        if (!json_is_string(type))
            return wrong_type(e, member_name(&name, of, i, ""), "a part with a type and a text", part);
        if (strcmp(json_string_value(type), "text") != 0)
            return api_error_set(e, 400, "unsupported_value", member_name(&name, of, i, "type"),
                                 "content parts can only be text here; got %.40s", json_string_value(type));
        if (!json_is_string(text))
            return api_error_set(e, 400, "invalid_type", member_name(&name, of, i, "text"),
                                 "a text part needs a 'text', a string");
        json_object_foreach((json_t *)(uintptr_t)part, key, v)
        {
            static const char *const harmless[] = {"type", "text", "cache_control", "annotations"};
            size_t k = 0;
            while (k < 4 && strcmp(harmless[k], key) != 0) k++;
            if (k < 4 || json_is_null(v) || request_ignore(r, member_name(&name, of, i, key))) continue;
            return api_error_set(e, 400, "unknown_parameter", member_name(&name, of, i, key),
                                 "a text part has no '%.60s' that would reach the template", key);
        }
    }
    return 0;
}

static int check_message(request *r, size_t i, const json_t *v, api_error *e)
{
    char name[PARAM_BYTES];
    if (!json_is_object(v)) return wrong_type(e, member_name(&name, "messages", i, ""), "an object", v);
    const json_t *role = json_object_get(v, "role"), *content = json_object_get(v, "content");
    member_name(&name, "messages", i, "role");
    if (!json_is_string(role))
        return api_error_set(e, 400, "invalid_type", name, "message %zu needs a 'role', a string", i);
    if (!is_role(role))
        return api_error_set(e, 400, "invalid_value", name,
                             "the role of message %zu is none of system, developer, user, assistant, tool, function",
                             i);
    member_name(&name, "messages", i, "content");
    if (json_is_array(content)) return check_parts(r, name, content, e);
    bool nothing = !content || json_is_null(content);
    if (nothing && strcmp(json_string_value(role), "assistant") != 0)
        return api_error_set(e, 400, "missing_required_parameter", name, "message %zu needs a 'content'", i);
    if (!nothing && !json_is_string(content)) return wrong_type(e, name, "a string or an array of text parts", content);
    return 0;
}

int read_messages(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_array(v)) return wrong_type(e, f->name, "an array of messages", v);
    if (json_array_size(v) == 0)
        return api_error_set(e, 400, "invalid_value", f->name, "'%s' must have at least one message", f->name);
    size_t i;
    const json_t *m;
    json_array_foreach(v, i, m)
    {
        if (check_message(r, i, m, e)) return e->http_status;
    }
    r->messages = v;
    r->n_messages = i;
    r->n_prompts = 1;
    return 0;
}

/* Calls are the model's to write: the template shows it the tools, its answer comes as the text that it is. */
int read_tools(request *r, const field *f, const json_t *v, api_error *e)
{
    size_t i;
    const json_t *tool;
    if (!json_is_array(v)) return wrong_type(e, f->name, "an array of objects", v);
    json_array_foreach(v, i, tool)
    {
        if (!json_is_object(tool)) return wrong_type(e, f->name, "an array of objects", tool);
    }
    r->tools = i ? v : NULL;
    return 0;
}

int read_tool_choice(request *r, const field *f, const json_t *v, api_error *e)
{
    const char *word = json_string_value(v);
    if (!word && !json_is_object(v)) return wrong_type(e, f->name, "a string or an object", v);
    if (word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)) return 0;
    if (request_ignore(r, f->name)) return 0;
    return api_error_set(e, 400, "unsupported_value", f->name,
                         "'%s' can be none or auto here: the model can't be made to call a tool", f->name);
}

int read_documents(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_array(v)) return wrong_type(e, f->name, "an array", v);
    r->documents = json_array_size(v) ? v : NULL;
    return 0;
}

/* A variable that the template never names would be given in vain. */
static void note_variable(request *r, const char *variable, const char *name)
{
    if (r->rules->chat_template && !strstr(r->rules->chat_template, variable)) request_note(r, name);
}

int read_template_kwargs(request *r, const field *f, const json_t *v, api_error *e)
{
    static const char *const own[] = {"messages",  "tools",    "documents", "add_generation_prompt",
                                      "bos_token", "eos_token"};
    const char *key;
    json_t *x;
    if (!json_is_object(v)) return wrong_type(e, f->name, "an object", v);
    json_object_foreach((json_t *)(uintptr_t)v, key, x)
    {
        char name[sizeof e->param];
        snprintf(name, sizeof name, "%s.%.40s", f->name, key);
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (strcmp(own[i], key) == 0)
                return api_error_set(e, 400, "invalid_value", name, "'%s' is not given as a variable: %s", key,
                                     i < 4 ? "it is a field of its own" : "it is the model's");
        note_variable(r, key, name);
    }
    r->template_kwargs = v;
    return 0;
}

int read_effort(request *r, const field *f, const json_t *v, api_error *e)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    if (!json_is_string(v)) return wrong_type(e, f->name, "a string", v);
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (strcmp(efforts[i], json_string_value(v)) == 0) r->reasoning_effort = efforts[i];
    if (!r->reasoning_effort)
        return api_error_set(e, 400, "invalid_value", f->name, "'%s' is none, minimal, low, medium, high or xhigh",
                             f->name);
    note_variable(r, f->name, f->name);
    return 0;
}
