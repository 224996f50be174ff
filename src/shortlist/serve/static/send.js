// The one way of the page's requests: to the server. An app without a server has another file of this name.

export const send = (path, options) => fetch(path, options);
