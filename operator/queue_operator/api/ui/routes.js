// Where in the page somebody is: all of it is in the address, so links and the back button work.

/** The address behind the #: a view, maybe an id, and parameters. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  return { view: view || "overview", id: decoded(rest.join("/")), params: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a view; what is empty is left out. */
export function to(view, params = {}, id = "") {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  const path = id ? `${view}/${encodeURIComponent(id)}` : view;
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function go(address) {
  location.hash = address;
}
